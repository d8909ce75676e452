"""Figure 3: utility against delta, learned noise beside truncated Gaussians, for every n; L2 shape; other epsilons."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.special import xlogy

from optnoise import drawing, style
from optnoise.baselines import matched_gaussian
from optnoise.figures import Inputs, run
from optnoise.grid import Grid
from optnoise.storage import NoiseFile

PANELS = {"a": ("adp", "l1"), "b": ("adp", "l2"), "d": ("ma", "l1"), "e": ("ma", "l2")}
REACH = 4  # root mean squares of the noise that panel c shows on either side
DECADES = {"panel": 12, "strip": 0.5}  # of delta below the largest, and of its ratio below 1: there axes end
PLACES = {"a": (0, 0), "b": (0, 1), "c": (0, 2), "d": (1, 0), "e": (1, 1), "f": (1, 2)}


def draw(inputs: Inputs) -> tuple[plt.Figure, str]:
    """Panels a to f, each with a strip below that shows what the panel's axes cannot resolve."""
    gaussian = inputs.frontier("gaussian")
    figure, grid = plt.subplots(
        *(4, 3),
        **{"figsize": (1.15 * style.WIDTH, 7.4), "height_ratios": [3, 1.1, 3, 1.1], "sharex": False},
    )
    pair = {letter: (grid[2 * row, column], grid[2 * row + 1, column]) for letter, (row, column) in PLACES.items()}
    words, ns = [], set()
    for letter, (method, loss) in PANELS.items():
        table = inputs.frontier(f"sweep_{method}_{loss}")
        ns |= set(table["n"])
        ratios = frontiers(*pair[letter], table, gaussian, "n", style.compositions_colour)
        pair[letter][1].set_xlabel(style.UTILITY_AXIS[loss])
        style.panel_letter(pair[letter][0], letter, f"{style.method_name(method)}, {loss.upper()}")
        words.append(f"({letter}) {sentence(table, ratios, 'n')}")
    words.insert(2, f"(c) {shape(*pair['c'], inputs)}")
    other = inputs.frontier("sweep_epsilons")
    n = other["n"].max()
    ratios = frontiers(*pair["f"], other, gaussian[gaussian["n"] == n], "eps", style.epsilon_colour)
    pair["f"][1].set_xlabel(style.UTILITY_AXIS["l1"])
    style.panel_letter(pair["f"][0], "f", f"learned, ADP, L1, $n = {n}$")
    epsilons = [
        drawing.entry(rf"(f) $\varepsilon = {eps:g}$", color=style.epsilon_colour(eps))
        for eps in sorted(set(other["eps"]))
    ]
    words.append(f"(f) n = {n}, {sentence(other, ratios, 'eps')}")
    for letter, (panel, strip) in pair.items():
        panel.tick_params(labelbottom=False)
        strip.sharex(panel)
        if letter != "c":
            panel.set_ylabel(r"$\delta$")
            strip.set_ylabel(r"$\delta\,/\,\delta_{\mathrm{Gaussian}}$")
    handles = [*drawing.compositions_handles(ns), *drawing.frontier_handles(), *epsilons]
    drawing.legend_below(figure, handles, columns=5)
    trained = drawing.listing(f"{eps:g}" for eps in sorted(inputs.frontier("sweep_adp_l1")["eps"].unique()))
    caption = (
        f"Utility loss against delta at eps = {trained} (f: as listed) of learned noise, non-dominated noises only,"
        " beside truncated Gaussians on the same range (dotted: running minimum over sigma), upper bounds of the larger"
        f" order. Axes cover the learned noises, but no more than {DECADES['panel']} decades of delta, and"
        f" {DECADES['strip']} of one below a ratio of 1; figures 7 and 9 show all Gaussians and every noise."
        " Strips: delta over the truncated Gaussian's at equal utility loss, below 1 where learned noise is better. "
        + " ".join(words)
    )
    return drawing.finish(figure), caption


def frontiers(panel: plt.Axes, strip: plt.Axes, table: pd.DataFrame, gaussian: pd.DataFrame, key: str, colour) -> dict:
    """Learned frontiers and Gaussians by ``key`` (n or eps); returns the ratios of delta by ``key``."""
    gaussian = gaussian[gaussian["loss"] == table["loss"].iloc[0]]
    ratios = {}
    for (value, n, eps), group in table.groupby([key, "n", "eps"]):
        value = int(value) if key == "n" else value
        drawing.draw_frontier(panel, group, colour(value))
        base = gaussian[(gaussian["n"] == n) & np.isclose(gaussian["eps"], eps)]
        drawing.draw_baseline(panel, base, colour(value))
        rows = group[group["status"] == "frontier"].sort_values("utility")
        ratios[value] = drawing.delta_ratio(rows, base)
        strip.plot(rows["utility"], drawing.positive(ratios[value]), "o-", color=colour(value), linewidth=0.8)
    shown = table[table["status"] == "frontier"]
    for axes in (panel, strip):
        drawing.log_axes(axes, "xy")
    drawing.frame(panel, shown["utility"], shown["delta_upper"])
    drawing.at_most_one(panel)
    strip.axhline(1.0, color="black", linewidth=0.6)
    bottom, top = panel.get_ylim()
    panel.set_ylim(bottom=max(bottom, top * 10.0 ** -DECADES["panel"]))
    known = np.concatenate([ratio[np.isfinite(ratio)] for ratio in ratios.values()] or [np.array([])])
    strip.set_ylim(max(strip.get_ylim()[0], 10.0 ** -DECADES["strip"]), 1.1 * max(1.0, known.max(initial=0.0)))
    if shown.empty:
        drawing.note(panel, "every noise collapsed")
    if not any(np.isfinite(ratio).any() for ratio in ratios.values()):
        drawing.note(strip, "no Gaussian of equal utility loss")
    return ratios


def sentence(table: pd.DataFrame, ratios: dict, key: str) -> str:
    """How the ratios of delta lie about 1, and what is not drawn."""
    known = {value: ratio[np.isfinite(ratio)] for value, ratio in ratios.items()}
    known = {value: ratio for value, ratio in known.items() if ratio.size}
    everything = np.concatenate(list(known.values())) if known else np.array([])
    counts = table["status"].value_counts()
    left_out = f"{counts.get('collapsed', 0)} collapsed and {counts.get('dominated', 0)} dominated noises not drawn."
    if not known:
        return f"no Gaussian to compare with; {left_out}"
    better = [f"{value:g}" for value, ratio in known.items() if ratio.max() < 1]
    return (
        f"delta over the Gaussian's {drawing.between(everything)} (median {drawing.number(np.median(everything))}),"
        f" below it throughout {f'at {key} = {drawing.listing(better)}' if better else f'at no {key}'}; {left_out}"
    )


def shape(panel: plt.Axes, strip: plt.Axes, inputs: Inputs) -> str:
    """The middle noise of the L2 frontier at the largest n, against the truncated Gaussian of equal rms."""
    noises, table = inputs.noises("sweep_adp_l2"), inputs.frontier("sweep_adp_l2")
    n = table["n"].max()
    rows = table[(table["n"] == n) & (table["status"] == "frontier")].sort_values("utility")
    style.panel_letter(panel, "c", f"learned, ADP, L2, $n = {n}$")
    if rows.empty:
        drawing.note(panel, "every noise collapsed")
        return f"n = {n}: every noise collapsed."
    pairs = [gaussian_twin(*drawing.noise_of(noises, row)) for row in rows.itertuples()]
    divergences = [divergence(learned.p[index], twin.p[0], learned.x) for learned, index, twin in pairs]
    middle = len(pairs) // 2
    learned, index, twin = pairs[middle]
    colour = style.compositions_colour(n)
    gaussian = {"color": style.method_colour("gaussian"), "linestyle": style.method_line("gaussian")}
    drawing.draw_density(panel, learned, index, color=colour, label="learned")
    drawing.draw_density(panel, twin, label="Gaussian", **gaussian)
    text = f"KL divergence\n{drawing.number(divergences[middle])}"
    panel.text(0.5, 0.05, text, transform=panel.transAxes, ha="center", fontsize="small")
    panel.legend(loc="upper right", fontsize="x-small")
    panel.set_ylabel("density")
    reach = min(REACH * rows["rms"].iloc[middle], drawing.half_width(learned))
    values, edges = drawing.density(learned, index)
    base, _ = drawing.density(twin, 0)
    ratio = np.where(np.abs(edges[:-1] + edges[1:]) < 2 * reach, drawing.ratio(values, base), np.nan)
    drawing.draw_steps(strip, ratio, edges, color=colour, linewidth=0.9)
    strip.axhline(1.0, color="black", linewidth=0.6)
    strip.set(xlabel="noise $x$ (sensitivities)", ylabel="density ratio")
    if np.nanmax(ratio) > 2 * np.nanmin(ratio):
        drawing.log_axes(strip, "y")
    else:
        strip.ticklabel_format(axis="y", useOffset=False)
    panel.set_xlim(-reach, reach)
    return (
        f"n = {n}, the middle noise of the L2 frontier (rms {drawing.number(rows['rms'].iloc[middle])}) and the"
        f" truncated Gaussian of equal rms: Kullback-Leibler divergence {drawing.number(divergences[middle])}; over the"
        f" whole frontier {drawing.between(divergences)}, below 1e-4 for {sum(d < 1e-4 for d in divergences)} of"
        f" {len(divergences)} noises."
    )


def divergence(p: np.ndarray, gaussian: np.ndarray, x: np.ndarray) -> float:
    """Kullback-Leibler divergence of ``p`` from a truncated Gaussian, in nats.

    Far out, where the Gaussian's masses underflow, their logarithms continue as the parabola that they are.
    """
    logs = np.log(np.maximum(gaussian, np.finfo(float).tiny))
    middle, edge = np.argmin(np.abs(x)), np.flatnonzero(gaussian > 1e-290)[-1]
    lost = gaussian <= 1e-290
    if lost.any():
        slope = (logs[edge] - logs[middle]) / (x[edge] ** 2 - x[middle] ** 2)
        logs[lost] = logs[edge] + slope * (x[lost] ** 2 - x[edge] ** 2)
    return float(np.sum(xlogy(p, p) - p * logs))


def gaussian_twin(noise: NoiseFile, index: int) -> tuple[NoiseFile, int, NoiseFile]:
    """A noise with the truncated Gaussian of equal E x^2 on its grid."""
    grid = Grid(**noise.meta["grid"])
    p = matched_gaussian(grid, utility=float(noise.p[index] @ grid.cost("l2")), loss="l2")
    return noise, index, NoiseFile(noise.x, p[None], np.array([np.nan]), meta={"grid": noise.meta["grid"]})


if __name__ == "__main__":
    run(draw)
