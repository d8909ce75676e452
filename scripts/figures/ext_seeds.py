"""Delta while training from several random starts: the median, the spread, and what the evaluator says at the end."""

import matplotlib.pyplot as plt
import numpy as np

from optnoise import drawing, style
from optnoise.figures import Inputs, run

METHODS = ("adp", "ma", "pdp")
MARKERS = {"adp": "o", "ma": "s", "pdp": "^"}
BEYOND = 1.3  # the evaluated deltas stand this factor right of the last epoch


def draw(inputs: Inputs) -> tuple[plt.Figure, str]:
    """One panel for each method, all on the same axes."""
    figure, panels = drawing.small_multiples(len(METHODS), columns=3, height=2.2, sharey=True)
    words = []
    for axes, method in zip(panels, METHODS, strict=True):
        noises = inputs.noises(f"seeds_{method}")
        table = drawing.both_orders(inputs.evaluation(f"seeds_{method}"))
        epochs, deltas = aligned(list(noises.values()))
        look = {"color": style.method_colour(method), "linestyle": style.method_line(method)}
        low, middle, high = np.nanmin(deltas, axis=0), np.nanmedian(deltas, axis=0), np.nanmax(deltas, axis=0)
        axes.fill_between(epochs, low, high, color=look["color"], alpha=0.3, linewidth=0)
        axes.plot(epochs, middle, **look)
        place = np.full(len(table), BEYOND * epochs[-1])
        axes.plot(place, table["delta_upper"], MARKERS[method], color=look["color"], markerfacecolor="white")
        drawing.log_axes(axes, "xy")
        axes.set(xlabel="epoch", title=f"{style.method_name(method)}, {len(noises)} seeds")
        spread = table["delta_upper"].max() / table["delta_upper"].min() - 1
        words.append(
            f"{style.method_name(method)}: {drawing.between(table['delta_upper'])}, which is a relative spread of"
            f" {drawing.number(spread)}"
        )
    panels[0].set_ylabel(rf"$\delta$ at $\varepsilon = {table['eps'].iloc[0]:g}$")
    drawing.legend_below(figure, handles(), columns=3)
    return figure, (
        "Delta at the trained epsilon while training, over random seeds: the bound that training minimises (for MA it"
        " also bounds PDP and so lies above), and beyond the last epoch the evaluator's upper bound of each final"
        f" noise. Evaluated delta over the seeds, {'; '.join(words)}."
    )


def aligned(noises: list) -> tuple[np.ndarray, np.ndarray]:
    """(epochs (T,), deltas (seeds, T)) on the union of all recorded epochs; a run that ended keeps its last value."""
    epochs = np.unique(np.concatenate([noise.history["epoch"] for noise in noises]).astype(float))
    deltas = [np.interp(epochs, noise.history["epoch"], noise.history["delta"][0]) for noise in noises]
    keep = epochs > 0  # the start has no place on a logarithmic axis
    return epochs[keep], drawing.positive(deltas)[:, keep]


def handles() -> list:
    """Legend entries, the same for all methods."""
    from matplotlib.patches import Patch

    return [
        drawing.entry("median over seeds"),
        Patch(color="black", alpha=0.3, linewidth=0, label="least to largest"),
        drawing.entry("evaluated, each seed", linestyle="none", marker="o", markerfacecolor="white"),
    ]


if __name__ == "__main__":
    run(draw)
