"""Figure 2: delta(eps) of learned and analytic stairs, their relative difference, and how close the noises are."""

import matplotlib.pyplot as plt
import numpy as np

from optnoise import drawing, style
from optnoise.figures import Inputs, run

EXPERIMENTS = {"staircase": "stairs_analytic", "ma": "stairs_ma", "pdp": "stairs_pdp", "adp": "stairs_adp"}
CLAIMED = 1e-2  # the paper: "relative difference ... smaller than"


def draw(inputs: Inputs) -> tuple[plt.Figure, str]:
    """A column for each half-width: delta(eps) with distinguishing events, relative differences, densities' ratio."""
    noises = {method: drawing.by_half_width(inputs.noises(name)) for method, name in EXPERIMENTS.items()}
    tables = {method: drawing.both_orders(inputs.evaluation(name)) for method, name in EXPERIMENTS.items()}
    widths = list(noises["adp"])
    figure, axes = plt.subplots(3, len(widths), figsize=(style.WIDTH, 6.2), squeeze=False)
    lines = []
    for column, width in enumerate(widths):
        curves = {}
        for method, table in tables.items():
            curves[method] = table[table["run"] == noises[method][width][0]].sort_values("eps")
        deltas(axes[0, column], curves)
        gaps = differences(axes[1, column], curves)
        closeness(axes[2, column], {method: noises[method][width][1] for method in noises})
        axes[0, column].set_title(f"$r = {width:g}$")
        axes[2, column].set_xlim(0, width)
        verdict = "below" if gaps["adp"] < CLAIMED else "not below"
        events = [drawing.number(curves[method]["delta_inf"].iloc[0]) for method in ("adp", "staircase")]
        lines.append(
            f"r = {width:g}: at most {drawing.number(gaps['adp'])}, {verdict} {CLAIMED:g}"
            f" (MA {drawing.number(gaps['ma'])}, PDP {drawing.number(gaps['pdp'])}); distinguishing events {events[0]}"
            f" and {events[1]}"
        )
    axes[0, 0].set_ylabel(r"$\delta(\varepsilon)$")
    axes[1, 0].set_ylabel(r"$|\delta - \delta_{\mathrm{staircase}}|\,/\,\delta_{\mathrm{staircase}}$")
    axes[2, 0].set_ylabel("density / staircase's density")
    handles = [
        drawing.entry(style.method_name(m), color=style.method_colour(m), linestyle=style.method_line(m))
        for m in ("adp", "ma", "pdp", "staircase")
    ]
    handles.append(drawing.entry("its distinguishing events", color="grey", linewidth=0.6, linestyle=(0, (1, 2))))
    drawing.legend_below(figure, handles, columns=3)
    eps = tables["adp"]["eps"]
    caption = (
        "One release, L1: top, delta over eps of the noises of figure 1a (both orders' larger, upper bounds), with"
        " each noise's distinguishing events as a thin level; middle, relative difference to the truncated staircase;"
        " bottom, density over the staircase's on one side of zero. Relative difference of delta between ADP noise and"
        f" staircase over eps from {eps.min():g} to {eps.max():g}, and distinguishing events of the two: "
        + "; ".join(lines)
        + "."
    )
    return drawing.finish(figure), caption


def deltas(axes: plt.Axes, curves: dict) -> None:
    """delta(eps) of each noise and the level of its distinguishing events."""
    for method, rows in curves.items():
        look = {"color": style.method_colour(method), "linestyle": style.method_line(method)}
        thick = 3.0 if method == "staircase" else 1.1
        drawing.draw_delta(axes, rows["eps"], rows["delta_lower"], rows["delta_upper"], linewidth=thick, **look)
        level = drawing.positive(rows["delta_inf"].iloc[0])
        axes.axhline(level, color=style.method_colour(method), linewidth=0.6, linestyle=(0, (1, 2)))
    drawing.log_axes(axes, "y")
    axes.set_xlabel(r"$\varepsilon$")


def differences(axes: plt.Axes, curves: dict) -> dict[str, float]:
    """Relative differences of delta to the staircase over eps; returns each method's largest."""
    base = curves["staircase"]["delta_upper"].to_numpy()
    largest = {}
    for method in ("ma", "pdp", "adp"):
        gap = drawing.ratio(np.abs(curves[method]["delta_upper"].to_numpy() - base), base)
        look = {"color": style.method_colour(method), "linestyle": style.method_line(method), "linewidth": 1.1}
        axes.plot(curves[method]["eps"], gap, **look)
        largest[method] = float(np.nanmax(gap, initial=0.0))
    axes.axhline(CLAIMED, color="black", linewidth=0.6)
    drawing.log_axes(axes, "y")
    axes.set_xlabel(r"$\varepsilon$")
    return largest


def closeness(axes: plt.Axes, noises: dict) -> None:
    """Each learned density over the staircase's."""
    base, edges = drawing.density(noises["staircase"], 0)
    for method in ("ma", "pdp", "adp"):
        values, _ = drawing.density(noises[method], 0)
        look = {"color": style.method_colour(method), "linestyle": style.method_line(method), "linewidth": 1.0}
        drawing.draw_steps(axes, drawing.ratio(values, base), edges, **look)
    axes.axhline(1.0, color=style.method_colour("staircase"), linewidth=0.6)
    drawing.log_axes(axes, "y")
    axes.set_xlabel("noise $x$ (sensitivities)")


if __name__ == "__main__":
    run(draw)
