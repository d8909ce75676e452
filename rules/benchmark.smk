# What training and evaluation cost on this machine, beside peers where they are installed; ext_efficiency draws it.


rule benchmark_training:
    input:
        code=closure("scripts/benchmark_training.py"),
    output:
        table="results/benchmarks/training.csv",
    log:
        "logs/benchmarks/training.log",
    conda:
        "../envs/cpu.yaml"
    threads: workflow.resource_settings.cores or 1  # nothing may run beside it
    params:
        options=benchmark_options(
            {
                "methods": "methods",
                "half-widths": "half_widths",
                "cells": "cells",
                "stacked": "stacked",
                "batch": "batch",
                "epochs": "epochs",
                "peer-epochs": "peer_epochs",
            }
        ),
    message:
        "Timing training epochs, with the whole machine to itself"
    shell:
        "python scripts/benchmark_training.py --table {output.table} {params.options} > {log} 2>&1"


rule benchmark_accountants:
    input:
        code=closure("scripts/benchmark_accountants.py"),
    output:
        table="results/benchmarks/accountants.csv",
    log:
        "logs/benchmarks/accountants.log",
    conda:
        "../envs/cpu.yaml"
    threads: workflow.resource_settings.cores or 1  # nothing may run beside it
    params:
        options=benchmark_options({"cells": "cells", "buckets": "buckets", "compositions": "compositions"}),
    message:
        "Timing accountants, with the whole machine to itself"
    shell:
        "python scripts/benchmark_accountants.py {output.table} {params.options} > {log} 2>&1"
