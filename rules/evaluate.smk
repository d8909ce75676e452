# Deltas of every noise by the evaluator, both orders, lower and upper bounds.


rule evaluate:
    message:
        "Evaluating {wildcards.experiment}/{wildcards.run} in both orders"
    input:
        noise="results/noise/{experiment}/{run}.npz",
        code=["scripts/evaluate.py", *closure("evaluation", "progress")],
    output:
        table="results/evaluation/{experiment}/{run}.csv",
    params:
        spec=lambda wildcards: run_of(wildcards).evaluation_json,
    log:
        "logs/evaluate/{experiment}/{run}.log",
    shell:
        "python scripts/evaluate.py --noise {input.noise} --spec {params.spec:q} --table {output.table} --log {log}"
