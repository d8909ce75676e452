"""Noise whose truncation range is learned: the range it takes, and the delta it gains over the sweep in a fixed one."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from optnoise import drawing, style
from optnoise.figures import Inputs, run
from optnoise.spec import TrainSpec

LOSSES = {"l1": "$E|x|$ (sensitivities)", "l2": r"$\sqrt{E\,x^2}$ (sensitivities)"}


def draw(inputs: Inputs) -> tuple[plt.Figure, str]:
    """Left to right L1 and L2; above the learned half-width, below delta over that of the fixed range."""
    noises = inputs.noises("range_learned")
    table = inputs.frontier("range_learned")
    table = table[table["status"] != "collapsed"].copy()
    table["reach"] = [reach(*drawing.noise_of(noises, row)) for row in table.itertuples()]
    fixed = max(drawing.half_width(noise) for noise in noises.values())
    figure, panels = plt.subplots(2, 2, figsize=(style.WIDTH, 4.4), sharex="col", sharey="row", squeeze=False)
    words = []
    for (above, below), (loss, label) in zip(panels.T, LOSSES.items(), strict=True):
        learned = table[table["loss"] == loss]
        gains = gain(learned, inputs.frontier(f"sweep_adp_{loss}"), noises)
        for n, rows in learned.groupby("n"):
            colour = style.compositions_colour(n)
            above.plot(rows["utility"], rows["reach"], "o-", color=colour, linewidth=0.9)
            part = gains[gains["n"] == n]
            below.plot(part["utility"], part["ratio"], "o-", color=colour, linewidth=0.9)
        above.axhline(fixed, color="black", linestyle="--", linewidth=0.8)
        below.axhline(1, color="black", linestyle="--", linewidth=0.8)
        above.set_title(f"{loss.upper()} utility loss")
        drawing.log_axes(above, "xy")
        drawing.log_axes(below, "x")
        drawing.plain_ticks(below.xaxis)
        below.set_xlabel(label)
        if not len(learned):
            drawing.note(above, "every noise collapsed")
        if not gains["ratio"].notna().any():
            drawing.note(below, "no noise of equal weight to compare")
        words.append(conclusion(loss, learned, gains, fixed))
    drawing.plain_ticks(panels[0, 0].yaxis)
    panels[0, 0].set_ylabel("learned half-width (sensitivities)")
    panels[1, 0].set_ylabel(r"$w u + \delta$, learned" + "\nover fixed range")
    dashes = drawing.entry("the fixed range; equal loss", linestyle="--", linewidth=0.8)
    drawing.legend_below(figure, [*drawing.compositions_handles(table["n"]), dashes], columns=5)
    return figure, (
        "Noise with exact zeros allowed (increments model), trained for each n and utility weight by the ADP loss on"
        f" [-{fixed:g}, {fixed:g}]. Above: the learned half-width, the outer edge of the outermost cell with mass, of"
        " every noise that has not collapsed. Below: final weight times utility loss plus delta, which training"
        " minimises, over the same of the sigmoid model's noise with the whole range for the same n and weight."
        f" {' '.join(words)}"
    )


def reach(noise, index: int) -> float:
    """The outer edge of the outermost cell with mass, in the units of the query."""
    occupied = np.flatnonzero(noise.p[index])
    step = 2 * drawing.half_width(noise) / noise.x.size
    return float(np.abs(noise.x[occupied]).max() + step / 2)


def gain(learned: pd.DataFrame, sweep: pd.DataFrame, noises: dict) -> pd.DataFrame:
    """The learned rows with ``ratio``: their w u + delta over that of the sweep's noise for the same n and weight w."""
    keys = ["n", "weight", "decay"]
    both = learned.merge(sweep[sweep["status"] != "collapsed"], on=keys, how="left", suffixes=("", "_fixed"))
    of_row = [drawing.noise_of(noises, row) for row in both.itertuples()]
    weight = [TrainSpec(**noise.meta["spec"]).final_weights[index] for noise, index in of_row]
    utility = {"l1": "u1", "l2": "u2"}
    losses = [
        [w * getattr(row, utility[row.loss] + end) + getattr(row, "delta_upper" + end) for end in ("", "_fixed")]
        for w, row in zip(weight, both.itertuples(), strict=True)
    ]
    return both.assign(ratio=[own / fixed for own, fixed in losses])


def conclusion(loss: str, learned: pd.DataFrame, gains: pd.DataFrame, fixed: float) -> str:
    """What came out for one utility loss, in words."""
    narrower = (learned["reach"] < fixed * (1 - 1e-12)).sum()
    ratios = gains["ratio"].dropna()
    return (
        f"{loss.upper()}: {narrower} of {len(learned)} noises are narrower than the range, with half-widths"
        f" {drawing.between(learned['reach'])}; the loss is {drawing.between(ratios)} times the fixed range's"
        f" ({(ratios < 1).sum()} of {len(ratios)} below it)."
    )


if __name__ == "__main__":
    run(draw)
