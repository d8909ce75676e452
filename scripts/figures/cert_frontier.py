"""Frontiers with the certified impossible region: where no noise can be, and how close learned noise comes."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from optnoise import drawing, style
from optnoise.figures import Inputs, run
from optnoise.storage import read_table

LEARNED = {"l1": ("sweep_adp_l1", "range_learned"), "l2": ("sweep_adp_l2", "range_learned")}
COLUMNS = 4
DECADES = 9  # below the largest delta shown, panels end
REGION = "#d9d9d9"


def draw(inputs: Inputs) -> tuple[plt.Figure, str]:
    """One panel for each utility loss and n."""
    region = pd.concat([read_table(inputs.extra(f"region_{loss}.csv")) for loss in LEARNED], ignore_index=True)
    gaps = read_table(inputs.extra("gaps.csv"))
    epsilon = region["eps"].iloc[0]
    gaussian = inputs.frontier("gaussian")
    gaussian = gaussian[gaussian["eps"] == epsilon]
    panels = [(loss, n) for loss in LEARNED for n in sorted(region["n"].unique())]
    figure, axes_of = drawing.small_multiples(len(panels), columns=COLUMNS)
    for axes, (loss, n) in zip(axes_of, panels, strict=True):
        tables = [inputs.frontier(name) for name in LEARNED[loss]]
        learned = pd.concat([table[(table["loss"] == loss) & (table["n"] == n)] for table in tables])
        learned = learned[learned["status"] == "frontier"]
        analytic = gaussian[(gaussian["loss"] == loss) & (gaussian["n"] == n)]
        bounds = region[(region["loss"] == loss) & (region["n"] == n)].sort_values("utility")
        drawing.draw_baseline(axes, analytic, style.method_colour("gaussian"))
        for model, marker in (("sigmoid", "o"), ("increments", "^")):
            rows = learned[learned["model"] == model]
            axes.plot(
                *(rows["utility"], drawing.positive(rows["delta_upper"]), marker),
                **{"color": style.method_colour("adp"), "markersize": 2.5, "zorder": 3},
            )
        tightened = gaps[(gaps["loss"] == loss) & (gaps["n"] == n) & gaps["tightened"].astype(bool)]
        axes.plot(tightened["utility_floor"], tightened["delta_upper"], "<", color="#d55e00", markersize=4, zorder=4)
        drawing.log_axes(axes, "xy")
        shown = learned if len(learned) else analytic
        drawing.frame(axes, shown["utility"], shown["delta_upper"])
        low, high = axes.get_xlim()
        axes.set_xlim(low / 1.5, high)
        drawing.at_most_one(axes)
        bottom, top = axes.get_ylim()
        bottom = max(bottom / 3, top * 10.0**-DECADES)
        axes.set_ylim(bottom=bottom)
        # The bound falls with the utility loss: what holds at one computed utility holds at all below it, as a step.
        widths = np.concatenate([[axes.get_xlim()[0] / 2], bounds["utility"]])
        proven = np.concatenate([bounds["delta_lower"][:1], bounds["delta_lower"]])
        axes.fill_between(widths, bottom, np.maximum(proven, bottom), step="pre", color=REGION, linewidth=0, zorder=0)
        drawing.plain_ticks(axes.xaxis)
        axes.set_title(f"{loss.upper()}, $n = {n}$")
        if not len(learned):
            drawing.note(axes, "no learned noise")
    for axes in axes_of:
        if axes in axes_of[-COLUMNS:]:
            axes.set_xlabel("utility loss (sensitivities)")
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel(rf"$\delta$ at $\varepsilon = {epsilon:g}$")
    blue, black = style.method_colour("adp"), style.method_colour("gaussian")
    drawing.legend_below(
        figure,
        [
            drawing.entry("learned, sigmoid", color=blue, marker="o", linestyle="none"),
            drawing.entry("learned, increments", color=blue, marker="^", linestyle="none"),
            drawing.entry("truncated Gaussian", color=black, linestyle=style.method_line("gaussian")),
            drawing.entry("no noise can be here", color=REGION, linewidth=5),
            drawing.entry("least utility loss, tightened", color="#d55e00", marker="<", linestyle="none"),
        ],
        columns=3,
    )
    return drawing.finish(figure), caption(gaps, epsilon)


def caption(gaps: pd.DataFrame, epsilon: float) -> str:
    """What is shown, and the least certified gap in utility loss for each utility loss and n."""
    lines = []
    for (loss, n), group in gaps.groupby(["loss", "n"]):
        known = group.dropna(subset=["utility_gap"])
        if len(known):
            best = known.loc[known["utility_gap"].idxmin()]
            how = ", with bound tightening" if best["tightened"] else ""
            lines.append(f"| {loss.upper()} | {n} | {best['delta_upper']:.3g} | {best['utility_gap']:.3f}{how} |")
    table = "\n".join(["| loss | n | at delta | utility loss over the least possible |", "|---|---|---|---|", *lines])
    return (
        f"Utility loss (E|x| for L1, the root of E x^2 for L2) against delta at eps = {epsilon:g}. In the shaded region"
        " no symmetric noise that falls from the centre can be, whatever its shape: the envelope bound of"
        " docs/certificates.md. Triangles pointing left: the least utility loss at a noise's delta, raised by bound"
        f" tightening. The smallest certified gap for each n:\n\n{table}\n"
    )


if __name__ == "__main__":
    run(draw)
