"""DP-SGD: delta of truncated Gaussians against the sampling rate, both orders, by n."""

import matplotlib.pyplot as plt

from optnoise import drawing, style
from optnoise.figures import Inputs, run
from optnoise.pairs import ORDERS

FLOOR = 1e-24  # smaller deltas leave the picture


def draw(inputs: Inputs) -> tuple[plt.Figure, str]:
    """One panel for each sigma."""
    table = inputs.evaluation("sampling_rate")
    epsilon = drawing.common_epsilon({"sampling_rate": table["eps"]})
    sigmas, ns = sorted(table["weight"].unique()), sorted(table["n"].unique())
    figure, panels = drawing.small_multiples(len(sigmas), columns=3, height=2.6, sharex=True, sharey=True)
    for axes, sigma in zip(panels, sigmas, strict=True):
        for (order, n), rows in table[table["weight"] == sigma].sort_values("q").groupby(["order", "n"]):
            look = {"color": style.compositions_colour(n), "linestyle": style.ORDER_LINES[order], "linewidth": 1.0}
            drawing.draw_delta(axes, rows["q"], rows["delta_lower"], rows["delta_upper"], **look)
        drawing.log_axes(axes, "xy")
        axes.set(xlabel="sampling rate $q$", title=rf"$\sigma = {sigma:g}$")
    panels[0].set_ylim(max(panels[0].get_ylim()[0], FLOOR), 2)  # shared by all panels
    panels[0].set_ylabel(rf"$\delta$ at $\varepsilon = {epsilon:g}$")
    orders = [drawing.entry(rf"$\delta_{{{order}}}$", linestyle=style.ORDER_LINES[order]) for order in ORDERS]
    drawing.legend_below(figure, [*drawing.compositions_handles(ns), *orders], columns=5)
    return figure, caption(table, sigmas)


def caption(table, sigmas: list) -> str:
    """What is shown, and which order gives the larger delta how often."""
    keys = ["weight", "q", "n", "eps"]
    sides = [table[table["order"] == order].set_index(keys) for order in ORDERS]
    ab, ba = (side.sort_index() for side in sides)
    ba_larger = (ba["delta_lower"] > ab["delta_upper"]).sum()
    ab_larger = (ab["delta_lower"] > ba["delta_upper"]).sum()
    none = (ab["delta_upper"] == 0).sum()
    return (
        f"Delta at eps = {table['eps'].iloc[0]:g} of truncated Gaussians with sigma ="
        f" {drawing.listing(f'{sigma:g}' for sigma in sigmas)} against the sampling rate q of DP-SGD (clipping constant"
        f" 1), in both orders. delta_B/A is provably the larger in {ba_larger} of {len(ab)} cases and delta_A/B in"
        f" {ab_larger}; in {none} cases A/B has no delta at all and no line, because its loss never exceeds"
        " -n log(1 - q), which is below eps."
    )


if __name__ == "__main__":
    run(draw)
