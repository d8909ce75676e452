# What the rules ask of the config: a job's run, spec and resources, and the files that a figure reads.


def run_of(wildcards):
    """The run that a job's wildcards name; asking for one that the config does not have is an error."""
    try:
        return RUNS[wildcards.experiment][wildcards.run]
    except KeyError:
        known = ", ".join(RUNS[wildcards.experiment])
        raise WorkflowError(f"{wildcards.experiment} has no run {wildcards.run!r}; it has {known}") from None


def experiments_of(kind):
    """A wildcard constraint: the experiments of this kind."""
    return "|".join(name for name, runs in RUNS.items() if next(iter(runs.values())).kind == kind) or "(?!)"


def asks(request_of):
    """The resources of a rule: what ``request_of(wildcards)`` asks for; memory and time grow with each attempt."""

    def ask(name):
        return lambda wildcards, attempt: request_of(wildcards).resources(attempt)[name]

    return {name: ask(name) for name in ("cpus_per_task", "mem_mb", "runtime", "gpu")}


def training_request(wildcards):
    """What a training job asks for."""
    return resources.training(run_of(wildcards).noise)


def evaluation_request(wildcards):
    """What an evaluation asks for. Matched noise has as many noises as its source."""
    run = run_of(wildcards)
    source = RUNS[run.source[0]][run.source[1]] if run.source else run
    return resources.evaluation(run.evaluation, source.noise)


def small_request(wildcards):
    """What jobs of seconds ask for: formulas, reductions, drawings."""
    return resources.SMALL


def files_of(kind, experiments):
    """The files of this kind that a figure reads."""
    if kind == "frontier":
        return [f"results/frontier/{name}.csv" for name in experiments]
    ending = {"noise": "npz", "evaluation": "csv"}[kind]
    return [f"results/{kind}/{name}/{run}.{ending}" for name in experiments for run in RUNS[name]]


def cached_files():
    """What figures and claims read. A run of everything asks for it, and so makes again what was deleted of it."""
    read = {kind: set() for kind in ("noise", "evaluation", "frontier")}
    for reads in (*settings["figures"].values(), settings["claims"]):
        for kind in read:
            read[kind].update(reads.get(kind, []))
    read["evaluation"] |= read["frontier"]
    read["noise"] |= read["evaluation"]
    read["noise"] |= {run.source[0] for name in read["noise"] for run in RUNS[name].values() if run.source}
    return [file for kind, names in read.items() for file in files_of(kind, sorted(names))]


def in_report(figure):
    """The picture of a figure, marked for the report with its caption and category."""
    kinds = {"fig": "Figures of the paper", "ext": "Further experiments", "cert": "Bounds and certificates"}
    kind = figure.partition("_")[0].rstrip("0123456789ab")
    return report(
        f"results/figures/{figure}.png",
        caption=str(Path(f"results/figures/{figure}.rst").absolute()),
        category=kinds.get(kind, "Other"),
        labels={"figure": figure},
    )


def certified(loss):
    """What decides the impossible region of one utility loss, as canonical JSON."""
    wanted, size = settings["certificates"]["region"], settings["sizes"]["certificate"]
    values = {name: wanted[name] for name in ("half_width", "sensitivity", "epsilon", "compositions")}
    values |= {"loss": loss, "widths": wanted["utilities"], "programs": size["programs"], "nodes": size["nodes"]}
    return canonical_json(values)


def tightened():
    """What decides the gaps apart from the tables, as canonical JSON."""
    wanted, size = settings["certificates"]["region"], settings["sizes"]["certificate"]
    values = {name: wanted[name] for name in ("half_width", "sensitivity", "epsilon", "delta")}
    return canonical_json(values | {"tighten": size["tighten"], "effort": size["effort"]})


def benchmark_options(names):
    """Command-line options from the benchmark's sizes."""
    sizes = settings["sizes"]["benchmark"]

    def text(value):
        return " ".join(map(str, value)) if isinstance(value, list) else str(value)

    return " ".join(f"--{option} {text(sizes[name])}" for option, name in names.items())
