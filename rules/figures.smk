# One rule for each figure, named as the figure: PDF, PNG and a caption from cached files.


for figure, reads in settings["figures"].items():
    if not Path(workflow.basedir, f"scripts/figures/{figure}.py").is_file():
        raise WorkflowError(f"config: figures.{figure}: there is no scripts/figures/{figure}.py that would draw it")

    rule:
        name:
            figure
        input:
            noise=files_of("noise", reads.get("noise", [])),
            evaluation=files_of("evaluation", reads.get("evaluation", [])),
            frontier=files_of("frontier", reads.get("frontier", [])),
            extra=reads.get("extra", []),
            style="matplotlibrc",
            code=closure(f"scripts/figures/{figure}.py"),
        output:
            pdf=f"results/figures/{figure}.pdf",
            png=in_report(figure),
            caption=f"results/figures/{figure}.md",
            report=f"results/figures/{figure}.rst",
        log:
            f"logs/figures/{figure}.log",
        conda:
            "../envs/cpu.yaml"
        resources:
            **asks(small_request),
        params:
            figure=lambda wildcards, output: output.png.removesuffix(".png"),
        message:
            f"Drawing {figure}"
        shell:
            "python {input.code[0]} --noise {input.noise} --evaluation {input.evaluation} --frontier {input.frontier}"
            " --extra {input.extra} --style {input.style} --figure {params.figure} --log {log}"
