"""Geng's uniform noise under composition, beside a Gaussian of equal delta at one release and epsilon 0."""

import matplotlib.pyplot as plt

from optnoise import drawing, style
from optnoise.figures import Inputs, run

FLOOR = 1e-15  # smaller deltas leave the picture
FAMILIES = {"uniform": "geng_uniform", "gaussian": "geng_gaussian"}
LINES = {"uniform": "-", "gaussian": style.method_line("gaussian")}


def draw(inputs: Inputs) -> tuple[plt.Figure, str]:
    """One panel for each epsilon; delta after n releases against delta at one release and epsilon 0."""
    tables = {family: drawing.both_orders(inputs.evaluation(name)) for family, name in FAMILIES.items()}
    epsilons = sorted(tables["uniform"]["eps"].unique())
    ns = sorted(tables["uniform"]["n"].unique())
    figure, panels = drawing.small_multiples(len(epsilons), columns=2, height=2.3, sharex=True, sharey=True)
    for axes, epsilon in zip(panels, epsilons, strict=True):
        for family, table in tables.items():
            for n, rows in table[table["eps"] == epsilon].sort_values("weight").groupby("n"):
                look = {"color": style.compositions_colour(n), "linestyle": LINES[family], "linewidth": 1.0}
                drawing.draw_delta(axes, rows["weight"], rows["delta_lower"], rows["delta_upper"], **look)
        drawing.log_axes(axes, "xy")
        axes.set_title(rf"$\varepsilon = {epsilon:g}$")
        axes.set_ylim(FLOOR, 2)
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel(r"$\delta$ after $n$ releases")
        if axes in panels[-2:]:
            axes.set_xlabel(r"$\delta$ of one release at $\varepsilon = 0$")
    families = [drawing.entry(style.method_name(family), linestyle=line) for family, line in LINES.items()]
    drawing.legend_below(figure, [*drawing.compositions_handles(ns), *families], columns=5)
    return figure, caption(tables, epsilons, ns)


def caption(tables: dict, epsilons: list, ns: list) -> str:
    """What is shown; how often each noise has the smaller delta, and how far uniform noise is from its floor."""
    both = tables["uniform"].merge(tables["gaussian"], on=["weight", "n", "eps"], suffixes=("", "_gaussian"))
    words = []
    for n in (ns[0], ns[-1]):
        rows = both[both["n"] == n]
        wins = (rows["delta_upper"] < rows["delta_lower_gaussian"]).sum()
        words.append(f"at n = {n} uniform noise has the smaller delta in {wins} of {len(rows)} cases")
    floor = (both["delta_upper"] / both["delta_inf"] - 1).max()
    return (
        "Geng's uniform noise (half-width 1/(2 delta) sensitivities) and a Gaussian (cut at 8 sigma) of the same delta"
        f" at one release and eps = 0, after n = {drawing.listing(ns)} releases, at eps ="
        f" {drawing.listing(f'{epsilon:g}' for epsilon in epsilons)}. Uniform noise gives nothing but distinguishing"
        f" events, 1 - (1 - delta)^n, whatever eps (largest relative excess {drawing.number(floor)}), while the"
        f" Gaussian's delta falls with eps: {'; '.join(words)}. Deltas below {FLOOR:g} are not shown."
    )


if __name__ == "__main__":
    run(draw)
