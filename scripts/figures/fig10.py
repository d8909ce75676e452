"""Figure 10: as figure 4 for DP-SGD with L2 utility, for noise trained on A/B, and for PDP."""

import matplotlib.pyplot as plt

from optnoise import drawing, style
from optnoise.figures import Inputs, run

ROWS = [  # loss, order trained on, method; figure 4 has ADP and MA for L1 trained on B/A
    *(("l2", "B/A", method) for method in ("adp", "ma", "pdp")),
    ("l1", "B/A", "pdp"),
    *((loss, "A/B", method) for loss in ("l1", "l2") for method in ("adp", "ma", "pdp")),
]
GAUSSIANS = {("l2", "B/A", "adp"): "sgd_gaussian_l2", ("l2", "B/A", "ma"): "sgd_gaussian_ma_l2"}


def draw(inputs: Inputs) -> tuple[plt.Figure, str]:
    """A row for each combination of loss, training order and method: densities, delta_{A/B}, delta_{B/A}."""
    figure, axes = plt.subplots(len(ROWS), 3, figsize=(style.WIDTH, 1.12 * len(ROWS)), sharex="col", sharey="col")
    words, ns, tables = [], set(), []
    for row, key in enumerate(ROWS):
        loss, order, method = key
        noises, table = inputs.noises(f"sgd_{method}_{loss}"), inputs.evaluation(f"sgd_{method}_{loss}")
        matched = inputs.evaluation(GAUSSIANS[key]) if key in GAUSSIANS else None
        drawing.sgd_panels(axes[row], noises, table, order, matched)
        name = f"{method.upper()}, {loss.upper()}, {order}"
        axes[row, 0].set_ylabel(f"{name}\ndensity", fontsize="small")
        axes[row, 1].set_ylabel(r"$\delta_{A/B}$")
        axes[row, 2].set_ylabel(r"$\delta_{B/A}$")
        ns |= set(table["n"])
        tables.append(table)
        words.append(f"{name}: {drawing.sgd_sentence(noises, table, order, matched)}")
    drawing.limit_deltas(axes[:, 1:].flat, tables)
    axes[-1, 0].set_xlabel("noise $x$ (sensitivities)")
    for panel in axes[-1, 1:]:
        panel.set_xlabel(r"$\varepsilon$")
    drawing.legend_below(figure, [*drawing.compositions_handles(ns), *drawing.sgd_handles()], columns=5)
    caption = (
        "DP-SGD as in figure 4, for L2 utility, for noise trained on A/B, and for PDP: densities by number of"
        " compositions n, and delta over eps in either order, upper bounds. Dotted, where there is one: truncated"
        f" Gaussian of equal E x^2. Axes end at {drawing.number(axes[0, 1].get_ylim()[0])}; delta_{{A/B}} is exactly 0"
        " from eps = -n log(1 - q) on. " + " ".join(words)
    )
    return drawing.finish(figure), caption


if __name__ == "__main__":
    run(draw)
