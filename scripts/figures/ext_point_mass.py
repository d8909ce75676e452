"""A point mass at zero under composition, and why noises here have none: it shows the true answer n times as often."""

import matplotlib.pyplot as plt
import numpy as np

from optnoise import drawing, style
from optnoise.figures import Inputs, run

COLUMNS = 2
FLOOR = 1e-20  # smaller deltas leave the picture


def draw(inputs: Inputs) -> tuple[plt.Figure, str]:
    """One panel for each sigma; delta against the point mass, by n. Without a point mass: at the left edge."""
    table = drawing.both_orders(inputs.evaluation("point_mass"))
    masses = {run: noise.meta["spec"]["point_mass"] for run, noise in inputs.noises("point_mass").items()}
    table["mass"] = table["run"].map(masses)
    epsilon = drawing.common_epsilon({"point_mass": table["eps"]})
    sigmas, ns = sorted(table["weight"].unique()), sorted(table["n"].unique())
    least = min((mass for mass in masses.values() if mass > 0), default=1.0)
    figure, panels = drawing.small_multiples(len(sigmas), columns=COLUMNS, height=2.2, sharex=True, sharey=True)
    for axes, sigma in zip(panels, sigmas, strict=True):
        for n, rows in table[table["weight"] == sigma].sort_values("mass").groupby("n"):
            colour = style.compositions_colour(n)
            with_mass, without = rows[rows["mass"] > 0], rows[rows["mass"] == 0]
            drawing.draw_delta(
                axes, with_mass["mass"], with_mass["delta_lower"], with_mass["delta_upper"], color=colour, marker="."
            )
            none = drawing.positive(without["delta_upper"])
            axes.plot(np.full(none.size, least / 10), none, "D", color=colour, markersize=3.5)
        drawing.log_axes(axes, "xy")
        axes.set_title(rf"$\sigma = {sigma:g}$")
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel(rf"$\delta$ at $\varepsilon = {epsilon:g}$")
        if axes in panels[-COLUMNS:]:
            axes.set_xlabel("point mass at 0")
    panels[0].set_ylim(max(panels[0].get_ylim()[0], FLOOR), 2)  # shared by all panels
    diamond = drawing.entry("no point mass", linestyle="none", marker="D")
    drawing.legend_below(figure, [*drawing.compositions_handles(ns), diamond], columns=5)
    return figure, caption(table, sigmas, ns)


def caption(table, sigmas: list, ns: list) -> str:
    """What is shown; what the largest point mass does to delta, against the chance of ever seeing it."""
    n, mass = ns[-1], table["mass"].max()
    least = table["mass"][table["mass"] > 0].min()
    words = []
    for sigma in sigmas:
        rows = table[(table["weight"] == sigma) & (table["n"] == n)].set_index("mass")["delta_upper"]
        if 0 in rows.index:
            steps = [f"{drawing.number(rows[value])} with {value:g}" for value in sorted({least, mass})]
            words.append(f"sigma = {sigma:g}: {drawing.number(rows[0])} without mass, {', '.join(steps)}")
    return (
        f"Truncated Gaussians mixed with a point mass m at 0, at eps = {table['eps'].iloc[0]:g} (upper bounds of"
        " delta). One release shows the true answer with probability m, and n releases do so at least once with"
        f" probability 1 - (1 - m)^n, which adds to delta as distinguishing events do. At n = {n}, {'; '.join(words)}."
    )


if __name__ == "__main__":
    run(draw)
