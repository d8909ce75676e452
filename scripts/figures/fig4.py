"""Figure 4: DP-SGD, L1, trained on B/A: noises by n; delta(eps) in both orders beside Gaussians of equal utility."""

import matplotlib.pyplot as plt

from optnoise import drawing, style
from optnoise.figures import Inputs, run

ORDER = "B/A"
GAUSSIANS = {"adp": "sgd_gaussian_l1", "ma": "sgd_gaussian_ma_l1"}


def draw(inputs: Inputs) -> tuple[plt.Figure, str]:
    """A column for each method: densities, delta_{A/B}, delta_{B/A}."""
    figure, axes = plt.subplots(3, 2, figsize=(style.WIDTH, 7.0), sharey="row")
    words, ns, tables = [], set(), []
    for column, (method, gaussians) in enumerate(GAUSSIANS.items()):
        noises, table = inputs.noises(f"sgd_{method}_l1"), inputs.evaluation(f"sgd_{method}_l1")
        matched = inputs.evaluation(gaussians)
        drawing.sgd_panels(axes[:, column], noises, table, ORDER, matched)
        axes[0, column].set_title(style.method_name(method))
        ns |= set(table["n"])
        tables.append(table)
        words.append(f"{style.method_name(method)}: {drawing.sgd_sentence(noises, table, ORDER, matched)}")
    drawing.limit_deltas(axes[1:].flat, tables)
    drawing.sgd_labels(axes)
    drawing.legend_below(figure, [*drawing.compositions_handles(ns), *drawing.sgd_handles()], columns=5)
    caption = (
        f"DP-SGD at sampling rate {drawing.listing(f'{q:g}' for q in table['q'].unique())}, L1, trained on {ORDER}:"
        " top, densities by number of compositions n (logarithmic, so that plateaus show: the model's constant A keeps"
        " every mass above zero); below, delta over eps in either order, upper bounds, beside truncated Gaussians of"
        f" equal E|x| (dotted). Axes end at {drawing.number(axes[1, 0].get_ylim()[0])}; delta_{{A/B}} is exactly 0 from"
        " eps = -n log(1 - q) on. " + " ".join(words)
    )
    return drawing.finish(figure), caption


if __name__ == "__main__":
    run(draw)
