"""Figure 7: delta of truncated Gaussians against sigma, for every n; it falls to a minimum and rises by the edges."""

import matplotlib.pyplot as plt

from optnoise import drawing, style
from optnoise.figures import Inputs, run

EPSILON = 0.3


def draw(inputs: Inputs) -> tuple[plt.Figure, str]:
    """One line for each n, its minimum marked."""
    table = inputs.frontier("gaussian")
    table = table[(table["loss"] == "l1") & (table["eps"] == EPSILON) & (table["kind"] == "adp")]
    figure, axes = plt.subplots(figsize=(style.WIDTH, 3.4))
    rises, minima = [], []
    for n, group in table.groupby("n"):
        rows = group.sort_values("weight")  # an analytic noise has its parameter there
        colour = style.compositions_colour(n)
        drawing.draw_delta(axes, rows["weight"], rows["delta_lower"], rows["delta_upper"], color=colour)
        best = rows.loc[rows["delta_upper"].idxmin()]
        axes.plot(best["weight"], drawing.positive(best["delta_upper"]), "D", color=colour, markeredgecolor="black")
        rises.append(rows["delta_upper"].iloc[-1] > best["delta_upper"])
        minima.append(best)
    drawing.log_axes(axes, "xy")
    axes.set_xlabel(r"standard deviation before truncation, $\sigma$ (sensitivities)")
    axes.set_ylabel(rf"$\delta$ at $\varepsilon = {EPSILON}$")
    minimum = drawing.entry("minimum", linestyle="none", marker="D", markerfacecolor="grey", markeredgecolor="black")
    drawing.legend_below(figure, [*drawing.compositions_handles(table["n"]), minimum], columns=5)
    first, last = minima[0], minima[-1]
    caption = (
        f"Delta of truncated Gaussians against sigma at eps = {EPSILON}, for n = {drawing.listing(table['n'].unique())}"
        f" compositions ({table['weight'].nunique()} values of sigma; the larger of both orders, upper bounds)."
        f" Beyond a minimum, marked, delta rises again in {sum(rises)} of {len(rises)} cases, because mass moves to the"
        f" cut edges, whose outcomes are distinguishing. The least delta is {drawing.number(first['delta_upper'])} at"
        f" sigma = {drawing.number(first['weight'])} for n = {first['n']}, and"
        f" {drawing.number(last['delta_upper'])} at sigma = {drawing.number(last['weight'])} for n = {last['n']}."
    )
    return drawing.finish(figure), caption


if __name__ == "__main__":
    run(draw)
