# Deltas of every noise by the evaluator, both orders, lower and upper bounds.


rule evaluate:
    input:
        noise="results/noise/{experiment}/{run}.npz",
        code=closure("scripts/evaluate.py"),
    output:
        table="results/evaluation/{experiment}/{run}.csv",
    log:
        "logs/evaluate/{experiment}/{run}.log",
    conda:
        "../envs/cpu.yaml"
    resources:
        **asks(evaluation_request),
    params:
        spec=lambda wildcards: run_of(wildcards).evaluation_json,
    message:
        "Evaluating {wildcards.experiment}/{wildcards.run} in both orders"
    shell:
        "python scripts/evaluate.py --noise {input.noise} --spec {params.spec:q} --table {output.table} --log {log}"
