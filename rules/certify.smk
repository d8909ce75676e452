# What no noise can beat, how close the learned noises come, and mechanisms to take away.


rule certify:
    input:
        code=closure("scripts/certify.py"),
    output:
        table="results/certificates/region_{run}.csv",
    log:
        "logs/certify/{run}.log",
    wildcard_constraints:
        run="l1|l2",
    conda:
        "../envs/cpu.yaml"
    resources:
        **asks(small_request),
    params:
        spec=lambda wildcards: certified(wildcards.run),
    message:
        "Certifying what no noise can reach, {wildcards.run}"
    shell:
        "python scripts/certify.py --spec {params.spec:q} --table {output.table} --log {log}"


rule gaps:
    input:
        frontiers=files_of("frontier", settings["certificates"]["frontiers"]),
        regions=["results/certificates/region_l1.csv", "results/certificates/region_l2.csv"],
        code=closure("scripts/gaps.py"),
    output:
        table="results/certificates/gaps.csv",
    log:
        "logs/certify/gaps.log",
    conda:
        "../envs/cpu.yaml"
    resources:
        **asks(small_request),
    params:
        spec=tightened(),
    message:
        "Certifying how far learned noise can be from the best"
    shell:
        "python scripts/gaps.py --frontiers {input.frontiers} --regions {input.regions} --spec {params.spec:q}"
        " --table {output.table} --log {log}"


rule renyi:
    input:
        code=closure("scripts/renyi.py"),
    output:
        table="results/certificates/renyi.csv",
        noise="results/certificates/renyi.npz",
    log:
        "logs/certify/renyi.log",
    conda:
        "../envs/cpu.yaml"
    resources:
        **asks(small_request),
    params:
        spec=canonical_json(
            settings["certificates"]["renyi"]
            | {"effort": settings["sizes"]["certificate"]["renyi_effort"], "search": settings["sizes"]["search"]}
        ),
    message:
        "Finding and bounding the least epsilon at a given variance"
    shell:
        "python scripts/renyi.py --spec {params.spec:q} --table {output.table} --noise {output.noise} --log {log}"


rule make_mechanism:
    input:
        code=closure("scripts/mechanism.py"),
    output:
        weights="results/mechanisms/{run}.csv",
        card="results/mechanisms/{run}.json",
    log:
        "logs/mechanisms/{run}.log",
    wildcard_constraints:
        run="|".join(settings["mechanisms"]) or "(?!)",
    conda:
        "../envs/cpu.yaml"
    resources:
        **asks(small_request),
    params:
        spec=lambda wildcards: canonical_json(
            settings["mechanisms"][wildcards.run] | {"search": settings["sizes"]["search"]}
        ),
        mechanism=lambda wildcards, output: output.card.removesuffix(".json"),
    message:
        "Finding the mechanism {wildcards.run}"
    shell:
        "python scripts/mechanism.py --spec {params.spec:q} --mechanism {params.mechanism} --log {log}"


rule mechanism:
    input:
        [f"results/mechanisms/{name}.json" for name in settings["mechanisms"]],
    message:
        "The mechanisms are in results/mechanisms"
