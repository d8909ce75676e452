# Utility-privacy frontiers: which evaluated noises no other dominates.


rule reduce:
    message:
        "Reducing {wildcards.experiment} to its utility-privacy frontier"
    input:
        tables=lambda wildcards: [
            f"results/evaluation/{wildcards.experiment}/{run}.csv" for run in RUNS[wildcards.experiment]
        ],
        code=["scripts/reduce.py", *closure("frontier", "storage", "progress")],
    output:
        table="results/frontier/{experiment}.csv",
    log:
        "logs/reduce/{experiment}.log",
    shell:
        "python scripts/reduce.py --tables {input.tables} --frontier {output.table} --log {log}"
