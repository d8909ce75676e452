# The paper's claims judged by our results: a table for people and one for programs.


rule claims:
    input:
        noise=files_of("noise", settings["claims"].get("noise", [])),
        evaluation=files_of("evaluation", settings["claims"].get("evaluation", [])),
        frontier=files_of("frontier", settings["claims"].get("frontier", [])),
        code=closure("scripts/claims.py"),
    output:
        text="results/claims.md",
        table="results/claims.csv",
    log:
        "logs/claims.log",
    conda:
        "../envs/cpu.yaml"
    resources:
        **asks(small_request),
    params:
        buckets=settings["sizes"]["evaluation_buckets"],
    message:
        "Judging the paper's claims"
    shell:
        "python scripts/claims.py --noise {input.noise} --evaluation {input.evaluation} --frontier {input.frontier}"
        " --buckets {params.buckets} --table {output.table} --text {output.text} --log {log}"
