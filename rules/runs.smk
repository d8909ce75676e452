# What the rules ask of the plan: a job's run, an experiment's files, the resources for a run's size.


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
