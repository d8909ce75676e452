"""Figure 12: a gallery of figure 3's learned noises: by method, utility loss and n, every weight of one run."""

import matplotlib.pyplot as plt
import numpy as np

from optnoise import drawing, style
from optnoise.figures import Inputs, run
from optnoise.storage import NoiseFile

ROWS = [("adp", "l1"), ("adp", "l2"), ("ma", "l1"), ("ma", "l2")]
MOST_COLUMNS = 4
REACH = 6  # root mean squares of the widest noise drawn


def draw(inputs: Inputs) -> tuple[plt.Figure, str]:
    """A row for each method and loss, a column for each of some n; noise trained with a decaying weight."""
    runs, weights = {}, set()
    for method, loss in ROWS:
        for noise in inputs.noises(f"sweep_{method}_{loss}").values():
            if noise.meta["spec"]["decay_half_life"] is not None:
                runs[method, loss, noise.meta["spec"]["compositions"]] = noise
                weights |= set(noise.weights)
    shown = drawing.evenly({n for *_, n in runs}, MOST_COLUMNS)
    ranks = {weight: rank for rank, weight in enumerate(sorted(weights))}
    colours = {weight: style.rank_colour(rank, len(ranks)) for weight, rank in ranks.items()}
    figure, axes = plt.subplots(len(ROWS), len(shown), figsize=(style.WIDTH, 7.2), squeeze=False)
    for row, (method, loss) in enumerate(ROWS):
        for column, n in enumerate(shown):
            panel = axes[row, column]
            drawing.log_axes(panel, "y")
            if (method, loss, n) not in runs:
                drawing.note(panel, "not trained")
                continue
            gallery(panel, runs[method, loss, n], colours)
            panel.set_title(f"{method.upper()}, {loss.upper()}, $n = {n}$")
        axes[row, 0].set_ylabel("density")
    for panel in axes[-1]:
        panel.set_xlabel("noise $x$ (sensitivities)")
    entries = [drawing.entry(f"$w = {weight:g}$", color=colour) for weight, colour in colours.items()]
    drawing.legend_below(figure, entries, columns=min(5, len(entries)))
    spreads = {key: spread(noise) for key, noise in runs.items()}
    wider = [spreads[method, loss, shown[-1]] > spreads[method, loss, shown[0]] for method, loss in ROWS]
    caption = (
        f"Learned noises of figure 3 for n = {drawing.listing(shown)}, trained with a decaying utility weight; colours"
        " are the weight at the start. Density logarithmic, cells without mass left out. At the same weight (the"
        f" median) noise for n = {shown[-1]} is wider than for n = {shown[0]} in {sum(wider)} of {len(wider)} rows;"
        f" rms {drawing.between(spreads.values())} over all."
    )
    return drawing.finish(figure), caption


def gallery(panel: plt.Axes, noise: NoiseFile, colours: dict) -> None:
    """Every weight's noise of one run, out to some root mean squares of the widest."""
    for index in np.argsort(noise.weights):
        drawing.draw_density(panel, noise, index, color=colours[noise.weights[index]], linewidth=0.8)
    widest = float(np.sqrt(noise.p @ noise.x**2).max())
    reach = min(REACH * widest, drawing.half_width(noise))
    panel.set_xlim(-reach, reach)
    drawing.fit_height(panel)


def spread(noise: NoiseFile) -> float:
    """The root mean square of the noise of the median weight."""
    middle = np.argsort(noise.weights)[noise.weights.size // 2]
    return float(np.sqrt(noise.p[middle] @ noise.x**2))


if __name__ == "__main__":
    run(draw)
