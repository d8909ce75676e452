"""Figure 8: a collapsed noise: of the sweep's noises with delta near 1 the narrowest, beside one that held."""

import matplotlib.pyplot as plt
import pandas as pd

from optnoise import drawing, style
from optnoise.figures import Inputs, run

EXPERIMENTS = ("sweep_adp_l1", "sweep_adp_l2", "sweep_ma_l1", "sweep_ma_l2")


def draw(inputs: Inputs) -> tuple[plt.Figure, str]:
    """The chosen noise near its centre and over the whole range, with its neighbour of the next lower weight."""
    table = pd.concat([inputs.frontier(name) for name in EXPERIMENTS], ignore_index=True)
    collapsed = table[table["status"] == "collapsed"]
    if len(collapsed):
        chosen = collapsed.sort_values(["rms", "experiment", "run", "weight"]).iloc[0]
        rule = "the collapsed noise (delta above 0.9) of least rms in the sweep"
    else:
        chosen = table.sort_values(["delta_upper", "experiment", "run", "weight"], ascending=False).iloc[0]
        rule = "no noise of the sweep collapsed (delta above 0.9); the one of largest delta"
    same = (table["experiment"] == chosen["experiment"]) & (table["run"] == chosen["run"])
    sound = table[same & (table["status"] != "collapsed") & (table["weight"] < chosen["weight"])]
    shown = [(chosen, "collapsed" if len(collapsed) else "largest $\\delta$", "-")]
    if len(sound):
        shown.append((sound.sort_values("weight").iloc[-1], "next lower weight", "--"))

    figure, (near, wide) = plt.subplots(1, 2, figsize=(style.WIDTH, 2.9))
    noises = inputs.noises(chosen["experiment"])
    for row, name, line in shown:
        noise, index = drawing.noise_of(noises, row)
        colour = style.method_colour(row["method"] if line == "-" else "gaussian")
        label = f"{name}: $w = {row['weight']:g}$, rms = {row['rms']:.3g}, $\\delta$ = {row['delta_upper']:.3g}"
        for panel in (near, wide):
            drawing.draw_density(panel, noise, index, color=colour, linestyle=line, label=label)
    half_width = drawing.half_width(noises[chosen["run"]])
    reach = min(max(6 * chosen["rms"], 2 * half_width / noises[chosen["run"]].x.size * 8), half_width)
    near.set_xlim(-reach, reach)
    wide.set_xlim(-half_width, half_width)
    for panel, letter in ((near, "a"), (wide, "b")):
        panel.set(xlabel="noise $x$ (sensitivities)", ylabel="density")
        style.panel_letter(panel, letter)
    drawing.log_axes(wide, "y")
    figure.legend(*near.get_legend_handles_labels(), loc="outside lower center", ncols=1)
    counts = collapsed.groupby("experiment").size()
    where = "; ".join(f"{name}: {counts.get(name, 0)} of {(table['experiment'] == name).sum()}" for name in EXPERIMENTS)
    caption = (
        f"Chosen by rule: {rule}. It is {chosen['experiment']}/{chosen['run']} at weight {chosen['weight']:g}"
        f" ({style.method_name(chosen['method'])}, {chosen['loss'].upper()}, n = {chosen['n']}): E|x| ="
        f" {drawing.number(chosen['u1'])}, rms = {drawing.number(chosen['rms'])}, delta ="
        f" {drawing.number(chosen['delta_upper'], 5)} at eps = {chosen['eps']:g}. Left the centre, right the whole"
        f" range, logarithmic. The utility weight outweighs privacy there. Collapsed noises by experiment: {where}."
    )
    return drawing.finish(figure), caption


if __name__ == "__main__":
    run(draw)
