"""Truncation effects: the same training in wider and wider ranges, its noises, their delta and their utility loss."""

import matplotlib.pyplot as plt
import numpy as np

from optnoise import drawing, style
from optnoise.figures import Inputs, run

SHADES = (0.0, 0.85)  # the part of the colour map that is dark enough
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))


def draw(inputs: Inputs) -> tuple[plt.Figure, str]:
    """Densities by half-width, then delta and utility loss against half-width."""
    noises = drawing.by_half_width(inputs.noises("range_adp"))
    table = drawing.both_orders(inputs.evaluation("range_adp"))
    rows = table.set_index("run").loc[[run_name for run_name, _ in noises.values()]]
    epsilon = drawing.common_epsilon({"range_adp": rows["eps"]})
    figure, panels = plt.subplot_mosaic(
        [["noise", "delta"], ["noise", "utility"]], figsize=(style.WIDTH, 3.2), width_ratios=[1.7, 1]
    )
    widths = np.array(list(noises))
    shades = plt.get_cmap("plasma")(np.linspace(*SHADES, len(widths)))
    for index, (width, (_, noise)) in enumerate(noises.items()):
        look = {"color": shades[index], "linestyle": LINES[index % len(LINES)], "label": f"$r = {width:g}$"}
        drawing.draw_density(panels["noise"], noise, linewidth=1.0, **look)
    drawing.log_axes(panels["noise"], "y")
    panels["noise"].set(xlabel="noise $x$ (sensitivities)", ylabel="density")
    panels["noise"].set_xscale("symlog", linthresh=widths[0] / 3)
    ticks = [width for width in (10, 100) if width < widths[-1]]
    panels["noise"].set_xticks([*(-tick for tick in ticks), 0, *ticks], minor=False)
    panels["noise"].xaxis.set_major_formatter("{x:g}")
    panels["noise"].xaxis.set_minor_locator(plt.NullLocator())
    drawing.legend_below(figure, panels["noise"].get_legend_handles_labels()[0], columns=6)

    look = {"color": style.method_colour("adp"), "marker": "o"}
    drawing.draw_delta(panels["delta"], widths, rows["delta_lower"], rows["delta_upper"], **look)
    panels["delta"].plot(widths, drawing.positive(rows["delta_inf"]), "s:", color="black", markerfacecolor="white")
    panels["utility"].plot(widths, rows["u1"], **look)
    drawing.log_axes(panels["delta"], "xy")
    drawing.log_axes(panels["utility"], "x")
    for name in ("delta", "utility"):
        panels[name].set_xticks(widths, [f"{width:g}" for width in widths])
        panels[name].minorticks_off()
        panels[name].set_xlabel("half-width $r$ (sensitivities)")
    panels["delta"].set_ylabel(rf"$\delta$ at $\varepsilon = {epsilon:g}$")
    panels["delta"].legend(
        handles=[
            drawing.entry(r"$\delta$", **look),
            drawing.entry("distinguishing", linestyle=":", marker="s", markerfacecolor="white"),
        ],
        loc="best",
    )
    panels["utility"].set_ylabel("$E|x|$ (sensitivities)")

    spec = next(iter(noises.values()))[1].meta["spec"]
    first, last = rows.iloc[0], rows.iloc[-1]
    share = drawing.number(last["delta_inf"] / last["delta_upper"]) if last["delta_upper"] > 0 else "none"
    return figure, (
        f"Noise learned with the ADP loss (L1, n = {spec['compositions']}, eps = {spec['epsilon']:g}, utility weight"
        f" {spec['weights'][0]:g}) on [-r, r] for r = {drawing.listing(f'{width:g}' for width in widths)}; the"
        " horizontal axis of the densities is linear near zero and logarithmic beyond. From the narrowest to the"
        f" widest range delta (upper bound) goes from {drawing.number(first['delta_upper'])} to"
        f" {drawing.number(last['delta_upper'])} and E|x| from {drawing.number(first['u1'])} to"
        f" {drawing.number(last['u1'])}; at the widest, distinguishing events make up {share} of delta."
    )


if __name__ == "__main__":
    run(draw)
