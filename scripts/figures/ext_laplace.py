"""Truncated Laplace noise beside truncated Gaussian and learned noise: L1 utility loss against delta, by n."""

import matplotlib.pyplot as plt

from optnoise import drawing, style
from optnoise.figures import Inputs, run

LOSS = "l1"
FAMILIES = ("laplace", "gaussian")
COLUMNS = 4
DECADES = 12  # below the largest delta of the learned noises, panels end


def draw(inputs: Inputs) -> tuple[plt.Figure, str]:
    """One panel for each n."""
    learned = inputs.frontier("sweep_adp_l1")
    epsilon = drawing.common_epsilon({"sweep_adp_l1": learned["eps"]})
    tables = {name: inputs.frontier(name) for name in FAMILIES}
    tables = {name: table[(table["loss"] == LOSS) & (table["eps"] == epsilon)] for name, table in tables.items()}
    ns = sorted(learned["n"].unique())
    figure, panels = drawing.small_multiples(len(ns), columns=COLUMNS)
    better = {}
    for axes, n in zip(panels, ns, strict=True):
        rows = learned[(learned["n"] == n) & (learned["status"] == "frontier")]
        analytic = {name: table[table["n"] == n] for name, table in tables.items()}
        for family, table in analytic.items():
            drawing.draw_baseline(axes, table, style.method_colour(family), family=family)
        axes.plot(
            *(rows["utility"], drawing.positive(rows["delta_upper"]), "o-"),
            **{"color": style.method_colour("adp"), "markersize": 2.5, "linewidth": 0.9},
        )
        drawing.log_axes(axes, "xy")
        shown = rows if len(rows) else analytic["gaussian"]
        drawing.frame(axes, shown["utility"], shown["delta_running"])
        drawing.at_most_one(axes)
        bottom, top = axes.get_ylim()
        axes.set_ylim(bottom=max(bottom, top * 10.0**-DECADES))
        drawing.plain_ticks(axes.xaxis)
        axes.set_title(f"$n = {n}$")
        if not len(rows):
            drawing.note(axes, "no learned noise")
        better[n] = compared(analytic)
    for axes in panels:
        if axes in panels[-COLUMNS:]:
            axes.set_xlabel("$E|x|$ (sensitivities)")
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel(rf"$\delta$ at $\varepsilon = {epsilon:g}$")
    lines = [drawing.entry(style.method_name(name), **line_of(name)) for name in (*FAMILIES, "adp")]
    drawing.legend_below(figure, lines, columns=3)
    words = "; ".join(f"n = {n}: {text}" for n, text in better.items())
    return figure, (
        f"L1 utility loss against delta at eps = {epsilon:g}: truncated Laplace and truncated Gaussian noise over their"
        " scale (running minimum of delta over rising utility loss) and noise learned with the ADP loss, not"
        " dominated. Smallest delta of the Laplace noise over the Gaussian's at equal utility loss, and the share of"
        f" utility losses at which Laplace is the better of the two, {words}."
    )


def line_of(name: str) -> dict:
    """How a method is drawn, for the legend."""
    marker = {"marker": "o"} if name == "adp" else {}
    return {"color": style.method_colour(name), "linestyle": style.method_line(name), **marker}


def compared(analytic: dict) -> str:
    """Where truncated Laplace noise has the smaller delta at equal utility loss, in words."""
    laplace, gaussian = analytic["laplace"], analytic["gaussian"]
    other = drawing.log_interpolated(laplace["utility"], gaussian["utility"], gaussian["delta_running"])
    ratio = drawing.positive(laplace["delta_running"].to_numpy() / other)
    ratio = ratio[~((ratio != ratio) | (other > 0.9))]  # where both have collapsed there is nothing to compare
    if not ratio.size:
        return "nothing to compare"
    return f"{drawing.number(ratio.min())}, {100 * (ratio < 1).mean():.0f} %"


if __name__ == "__main__":
    run(draw)
