"""Figure 11: DP-SGD, L1: delta_{A/B} and delta_{B/A} of noise trained on either order, four lines for each n."""

import matplotlib.pyplot as plt

from optnoise import drawing, style
from optnoise.figures import Inputs, run
from optnoise.pairs import ORDERS

METHODS = ("adp", "ma")
MOST_COLUMNS = 4
TOLERANCE = 1e-3  # two deltas nearer than the evaluator's width count as equal


def draw(inputs: Inputs) -> tuple[plt.Figure, str]:
    """A row for each method, a column for each of some n; the caption counts over every n."""
    tables = {method: inputs.evaluation(f"sgd_{method}_l1") for method in METHODS}
    noises = {method: inputs.noises(f"sgd_{method}_l1") for method in METHODS}
    ns = sorted({n for table in tables.values() for n in table["n"]})
    shown = drawing.evenly(ns, MOST_COLUMNS)
    figure, axes = plt.subplots(
        *(len(METHODS), len(shown)), figsize=(style.WIDTH, 4.4), sharex=True, sharey=True, squeeze=False
    )
    words = []
    for row, method in enumerate(METHODS):
        orders = drawing.trained(noises[method], "order")
        table = tables[method].assign(trained=tables[method]["run"].map(orders)).sort_values("eps")
        for column, n in enumerate(shown):
            panel = axes[row, column]
            for (trained, evaluated), rows in table[table["n"] == n].groupby(["trained", "order"]):
                look = {"color": style.order_colour(trained), "linestyle": style.ORDER_LINES[evaluated]}
                drawing.draw_delta(panel, rows["eps"], rows["delta_lower"], rows["delta_upper"], **look)
            drawing.log_axes(panel, "y")
            panel.set_title(f"{method.upper()}, $n = {n}$")
        axes[row, 0].set_ylabel(r"$\delta$")
        words.append(f"{style.method_name(method)}: {sentence(table)}")
    drawing.limit_deltas(axes.flat, tables.values())
    for panel in axes[-1]:
        panel.set_xlabel(r"$\varepsilon$")
    handles = [
        drawing.entry(
            rf"trained on {trained}: $\delta_{{{evaluated}}}$",
            color=style.order_colour(trained),
            linestyle=style.ORDER_LINES[evaluated],
        )
        for trained in ORDERS
        for evaluated in ORDERS
    ]
    drawing.legend_below(figure, handles, columns=4)
    caption = (
        f"DP-SGD, L1: delta over eps in both orders (line styles) of noise trained on either order (colours), upper"
        f" bounds, for n = {drawing.listing(shown)} of {drawing.listing(ns)}. A noise is worth the larger of its two."
        " delta_{A/B} is exactly 0 from eps = -n log(1 - q) on. " + " ".join(words)
    )
    return drawing.finish(figure), caption


def sentence(table) -> str:
    """For each n, where training on B/A gives the smaller maximum of both orders, and the utility losses."""
    both = drawing.both_orders(table.drop(columns="u2"))
    wins, places, parts = 0, 0, []
    for n, group in both.groupby("n"):
        curves = {trained: rows.set_index("eps") for trained, rows in group.groupby("trained")}
        if len(curves) < 2:
            continue
        first, second = (curves[order]["delta_upper"] for order in ("B/A", "A/B"))
        smaller = int((first <= second * (1 + TOLERANCE)).sum())
        wins, places = wins + smaller, places + len(first)
        losses = [drawing.number(curves[order]["u1"].iloc[0]) for order in ("B/A", "A/B")]
        parts.append(f"n = {n}: {smaller} of {len(first)} (E|x| {losses[0]} and {losses[1]})")
    return (
        f"training on B/A gives the smaller maximum, or an equal one, at {wins} of {places} values of eps"
        f" ({'; '.join(parts)}; in brackets utility losses after training on B/A and on A/B)."
    )


if __name__ == "__main__":
    run(draw)
