# Noise: learned by training, analytic by a formula, or matched in utility to learned noise.


rule train:
    input:
        code=closure("scripts/train.py"),
    output:
        noise="results/noise/{experiment}/{run}.npz",
    log:
        "logs/train/{experiment}/{run}.log",
    wildcard_constraints:
        experiment=experiments_of("learned"),
    cache: True  # nothing but the spec and the code decides the noise, so that equal ones may be shared
    conda:
        lambda wildcards: "../envs/gpu.yaml" if training_request(wildcards).gpus else "../envs/cpu.yaml"
    resources:
        **asks(training_request),
    params:
        spec=lambda wildcards: run_of(wildcards).noise_json,
    message:
        "Training {wildcards.experiment}/{wildcards.run}, all its utility weights as one batch"
    shell:
        "python scripts/train.py --spec {params.spec:q} --noise {output.noise} --log {log}"


rule analytic:
    input:
        code=closure("scripts/analytic.py"),
    output:
        noise="results/noise/{experiment}/{run}.npz",
    log:
        "logs/analytic/{experiment}/{run}.log",
    wildcard_constraints:
        experiment=experiments_of("analytic"),
    conda:
        "../envs/cpu.yaml"
    resources:
        **asks(small_request),
    params:
        spec=lambda wildcards: run_of(wildcards).noise_json,
    message:
        "Computing the analytic noise {wildcards.experiment}/{wildcards.run}"
    shell:
        "python scripts/analytic.py --spec {params.spec:q} --noise {output.noise} --log {log}"


rule match:
    input:
        source=lambda wildcards: "results/noise/{}/{}.npz".format(*run_of(wildcards).source),
        code=closure("scripts/match.py"),
    output:
        noise="results/noise/{experiment}/{run}.npz",
    log:
        "logs/match/{experiment}/{run}.log",
    wildcard_constraints:
        experiment=experiments_of("matched"),
    conda:
        "../envs/cpu.yaml"
    resources:
        **asks(small_request),
    params:
        spec=lambda wildcards: run_of(wildcards).noise_json,
    message:
        "Matching {wildcards.experiment}/{wildcards.run} to the utility of learned noise"
    shell:
        "python scripts/match.py --source {input.source} --spec {params.spec:q} --noise {output.noise} --log {log}"
