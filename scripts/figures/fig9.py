"""Figure 9: figure 3 raw: every noise, collapsed ones too, no running minimum, PDP included."""

import matplotlib.pyplot as plt

from optnoise import drawing, style
from optnoise.figures import Inputs, run

METHODS = ("adp", "ma", "pdp")
LOSSES = ("l1", "l2")


def draw(inputs: Inputs) -> tuple[plt.Figure, str]:
    """A row for each utility loss, a column for each method."""
    gaussian = inputs.frontier("gaussian")
    figure, axes = plt.subplots(2, 3, figsize=(style.WIDTH, 5.6), sharex="row", sharey=True)
    words, ns = [], set()
    names = [f"sweep_{method}_{loss}" for loss in LOSSES for method in METHODS]
    epsilon = drawing.common_epsilon({name: inputs.frontier(name)["eps"] for name in names})
    for row, loss in enumerate(LOSSES):
        for column, method in enumerate(METHODS):
            table = inputs.frontier(f"sweep_{method}_{loss}")
            panel = axes[row, column]
            for (n, eps), group in table.groupby(["n", "eps"]):
                drawing.draw_raw(panel, group, style.compositions_colour(n))
                base = gaussian[(gaussian["loss"] == loss) & (gaussian["n"] == n) & (gaussian["eps"] == eps)]
                drawing.draw_baseline(panel, base, style.compositions_colour(n), raw=True)
            drawing.log_axes(panel, "xy")
            panel.set_title(f"{style.method_name(method)}, {loss.upper()}")
            panel.set_xlabel(style.UTILITY_AXIS[loss])
            ns |= set(table["n"])
            counts = table["status"].value_counts()
            parts = ", ".join(f"{counts.get(name, 0)} {name}" for name in ("frontier", "dominated", "collapsed"))
            words.append(f"{method.upper()} {loss.upper()}: {parts}")
        axes[row, 0].set_ylabel(rf"$\delta$ at $\varepsilon = {epsilon:g}$")
    cross = drawing.entry("collapsed", linestyle="none", marker="x")
    handles = [*drawing.compositions_handles(ns), *drawing.frontier_handles(line=False), cross]
    drawing.legend_below(figure, handles, columns=4)
    caption = (
        "As figure 3, raw: delta (upper bound of the larger order) of every learned noise over its utility loss,"
        " dominated and collapsed ones included, and truncated Gaussians without running minimum, so that delta rises"
        f" again where mass meets the cut edges. Noises by status: {'; '.join(words)}."
    )
    return drawing.finish(figure), caption


if __name__ == "__main__":
    run(draw)
