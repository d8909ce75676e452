# One rule for each figure, named as the figure: PDF, PNG and a caption from cached files.


def files_of(kind, experiments):
    """The files of this kind that a figure reads."""
    if kind == "frontier":
        return [f"results/frontier/{name}.csv" for name in experiments]
    ending = {"noise": "npz", "evaluation": "csv"}[kind]
    return [f"results/{kind}/{name}/{run}.{ending}" for name in experiments for run in RUNS[name]]


for figure, reads in settings["figures"].items():

    rule:
        name:
            figure
        input:
            noise=files_of("noise", reads.get("noise", [])),
            evaluation=files_of("evaluation", reads.get("evaluation", [])),
            frontier=files_of("frontier", reads.get("frontier", [])),
            style="matplotlibrc",
            code=closure(f"scripts/figures/{figure}.py"),
        output:
            pdf=f"results/figures/{figure}.pdf",
            png=f"results/figures/{figure}.png",
            caption=f"results/figures/{figure}.md",
        log:
            f"logs/figures/{figure}.log",
        params:
            figure=f"results/figures/{figure}",
        message:
            f"Drawing {figure}"
        shell:
            "python {input.code[0]} --noise {input.noise} --evaluation {input.evaluation} --frontier {input.frontier}"
            " --style {input.style} --figure {params.figure} --log {log}"
