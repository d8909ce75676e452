# The front page of `snakemake --report report.html`; figures bring their own captions.


rule report_page:
    input:
        claims="results/claims.csv",
        lock="requirements.lock",
        code=closure("scripts/report.py"),
    output:
        page="results/report.rst",
    log:
        "logs/report.log",
    conda:
        "../envs/cpu.yaml"
    resources:
        **asks(small_request),
    message:
        "Writing the front page of the report"
    shell:
        "python scripts/report.py --claims {input.claims} --page {output.page} --log {log}"


# Before anything is built there is no page to show, and the report does without.
if Path("results/report.rst").exists():

    report: str(Path("results/report.rst").absolute())
