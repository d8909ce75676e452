"""Delta while training from several random starts: the median, the spread, and what the evaluator says at the end."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns

from optnoise import drawing, style
from optnoise.figures import Inputs, run

METHODS = ("adp", "ma", "pdp")


def draw(inputs: Inputs) -> tuple[plt.Figure, str]:
    """One panel for each method, all on the same axes, and one of how far the evaluated deltas lie apart."""
    figure = plt.figure(figsize=(style.WIDTH, 2.4))
    places = figure.add_gridspec(1, 4, width_ratios=[1, 1, 1, 1.1])
    panels = [figure.add_subplot(places[0])]
    panels += [figure.add_subplot(places[i], sharey=panels[0]) for i in (1, 2)] + [figure.add_subplot(places[3])]
    words, apart, epsilons = [], [], {}
    for axes, method in zip(panels, METHODS, strict=False):
        noises = inputs.noises(f"seeds_{method}")
        table = drawing.both_orders(inputs.evaluation(f"seeds_{method}"))
        epsilons[f"seeds_{method}"] = table["eps"]
        epochs, deltas = aligned(list(noises.values()))
        look = {"color": style.method_colour(method), "linestyle": style.method_line(method)}
        low, middle, high = np.nanmin(deltas, axis=0), np.nanmedian(deltas, axis=0), np.nanmax(deltas, axis=0)
        axes.fill_between(epochs, low, high, color=look["color"], alpha=0.3, linewidth=0)
        axes.plot(epochs, middle, **look)
        drawing.log_axes(axes, "xy" if epochs[-1] >= 100 * epochs[0] else "y")
        axes.set(xlabel="epoch", title=style.method_name(method))
        axes.tick_params(labelleft=axes is panels[0], which="both")
        # The most over the median: a spread of a few parts in a million has no place on an axis of deltas.
        excess = table["delta_upper"] / table["delta_upper"].median() - 1
        apart.append(pd.DataFrame({"method": method, "excess": 100 * excess}))
        spread = table["delta_upper"].max() / table["delta_upper"].min() - 1
        words.append(
            f"{style.method_name(method)}, {len(noises)} seeds: {drawing.between(table['delta_upper'])}, which is a"
            f" relative spread of {drawing.number(spread)}"
        )
    panels[0].set_ylabel(rf"$\delta$ at $\varepsilon = {drawing.common_epsilon(epsilons):g}$")
    seeds(panels[-1], pd.concat(apart, ignore_index=True))
    drawing.legend_below(figure, handles(), columns=3)
    return figure, (
        "Delta at the trained epsilon while training, over random seeds: the bound that training minimises (for MA it"
        " also bounds PDP and so lies above). Right: the evaluator's upper bound for each seed's final noise, over its"
        f" method's median. Evaluated delta over the seeds, {'; '.join(words)}."
    )


def seeds(axes: plt.Axes, table: pd.DataFrame) -> None:
    """Every seed's evaluated delta over its method's median, in percent."""
    colours = {method: style.method_colour(method) for method in METHODS}
    look = {"x": "method", "y": "excess", "hue": "method", "palette": colours, "order": METHODS, "hue_order": METHODS}
    # Random places within a strip would change the file from run to run.
    sns.stripplot(table, **look, jitter=False, size=5, alpha=0.5, linewidth=0.4, legend=False, ax=axes)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xticks(range(len(METHODS)), [method.upper() for method in METHODS])
    axes.set(xlabel="training loss", ylabel="evaluated $\\delta$ over\nthe median, less 1 (%)", title="each seed")


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
        drawing.entry("evaluated, each seed", linestyle="none", marker="o"),
    ]


if __name__ == "__main__":
    run(draw)
