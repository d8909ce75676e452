# Noise: learned by training, analytic by a formula, or matched in utility to learned noise.


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


rule train:
    message:
        "Training {wildcards.experiment}/{wildcards.run}, all its utility weights as one batch"
    input:
        code=["scripts/train.py", *closure("training", "storage", "progress")],
    output:
        noise="results/noise/{experiment}/{run}.npz",
    params:
        spec=lambda wildcards: run_of(wildcards).noise_json,
    log:
        "logs/train/{experiment}/{run}.log",
    wildcard_constraints:
        experiment=experiments_of("learned"),
    shell:
        "python scripts/train.py --spec {params.spec:q} --noise {output.noise} --log {log}"


rule analytic:
    message:
        "Computing the analytic noise {wildcards.experiment}/{wildcards.run}"
    input:
        code=["scripts/analytic.py", *closure("baselines", "storage", "progress")],
    output:
        noise="results/noise/{experiment}/{run}.npz",
    params:
        spec=lambda wildcards: run_of(wildcards).noise_json,
    log:
        "logs/analytic/{experiment}/{run}.log",
    wildcard_constraints:
        experiment=experiments_of("analytic"),
    shell:
        "python scripts/analytic.py --spec {params.spec:q} --noise {output.noise} --log {log}"


rule match:
    message:
        "Matching {wildcards.experiment}/{wildcards.run} to the utility of learned noise"
    input:
        source=lambda wildcards: "results/noise/{}/{}.npz".format(*run_of(wildcards).source),
        code=["scripts/match.py", *closure("baselines", "storage", "progress")],
    output:
        noise="results/noise/{experiment}/{run}.npz",
    params:
        spec=lambda wildcards: run_of(wildcards).noise_json,
    log:
        "logs/match/{experiment}/{run}.log",
    wildcard_constraints:
        experiment=experiments_of("matched"),
    shell:
        "python scripts/match.py --source {input.source} --spec {params.spec:q} --noise {output.noise} --log {log}"
