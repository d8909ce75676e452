# Utility-privacy frontiers: which evaluated noises no other dominates.


rule reduce:
    input:
        tables=lambda wildcards: [
            f"results/evaluation/{wildcards.experiment}/{run}.csv" for run in RUNS[wildcards.experiment]
        ],
        code=closure("scripts/reduce.py"),
    output:
        table="results/frontier/{experiment}.csv",
    log:
        "logs/reduce/{experiment}.log",
    conda:
        "../envs/cpu.yaml"
    resources:
        **asks(small_request),
    message:
        "Reducing {wildcards.experiment} to its utility-privacy frontier"
    shell:
        "python scripts/reduce.py --tables {input.tables} --frontier {output.table} --log {log}"
