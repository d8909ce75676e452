"""What an epoch of training and an evaluation cost: ours by method, size and backend, beside peers where installed."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from optnoise import drawing, style
from optnoise.figures import Inputs, run
from optnoise.storage import read_table

# label, marker, colour, and which rows of the training table with which column of seconds, for one noise
EPOCHS = {
    "dense autograd": ("X", "#d55e00", "peer_seconds", "numpy", False),
    "one noise, CPU": ("o", "#0173b2", "seconds", "numpy", False),
    "batch, CPU": ("s", "#56b4e9", "seconds", "numpy", True),
    "one noise, GPU": ("^", "#029e73", "seconds", "cupy", False),
    "batch, GPU": ("D", "#949494", "seconds", "cupy", True),
}
ACCOUNTANTS = {"optnoise": "o", "dp-accounting": "s", "prv-accountant": "^"}
EXACT = 1e-16  # relative width at which an interval of width 0 is drawn


def draw(inputs: Inputs) -> tuple[plt.Figure, str]:
    """The tables that the benchmarks wrote."""
    return compare(read_table(inputs.extra("training.csv")), read_table(inputs.extra("accountants.csv")))


def compare(training: pd.DataFrame, accountants: pd.DataFrame) -> tuple[plt.Figure, str]:
    """Left seconds per epoch and noise; right processor seconds of a delta against the width of its interval."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(style.WIDTH, 3.3), width_ratios=[1.25, 1])
    absent = [*draw_epochs(left, training), *draw_accountants(right, accountants)]
    if absent:
        figure.supxlabel(f"Not measured here: {'; '.join(absent)}.", fontsize="x-small", x=0.01, ha="left")
    style.panel_letter(left, "a")
    style.panel_letter(right, "b")
    return figure, caption(training, accountants, absent)


def draw_epochs(axes: plt.Axes, table: pd.DataFrame) -> list[str]:
    """One row for each half-width and method; returns what has no measurement."""
    cases = list(table.groupby(["half_width", "method"], sort=False).groups)
    absent = []
    for label, (marker, colour, column, backend, batched) in EPOCHS.items():
        rows = table[(table["backend"] == backend) & ((table["batch"] > 1) == batched)]
        seconds = drawing.positive(rows[column]) / rows["batch"].to_numpy()
        if not np.isfinite(seconds).any():
            absent.append(label)
            continue
        places = [cases.index(case) for case in zip(rows["half_width"], rows["method"], strict=True)]
        axes.plot(seconds, places, marker, color=colour, label=label, markersize=4.5, markeredgecolor="black")
    drawing.log_axes(axes, "x")
    axes.set_yticks(range(len(cases)), [f"{method.upper()}, $r = {half_width:g}$" for half_width, method in cases])
    axes.set(xlabel="seconds per epoch and noise", ylabel="training loss and half-width")
    axes.set_ylim(len(cases) - 0.5, -0.5)
    if len(absent) == len(EPOCHS):
        drawing.note(axes, "no measurement")
    else:
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.08), ncols=2, fontsize="x-small")
    return absent


def draw_accountants(axes: plt.Axes, table: pd.DataFrame) -> list[str]:
    """One marker for each pair, n and accountant; returns the accountants without a measurement."""
    absent = []
    for method, marker in ACCOUNTANTS.items():
        rows = table[(table["method"] == method) & table["cpu_seconds"].notna()]
        if rows.empty:
            absent.append(method)
        for row in rows.itertuples():
            colour = style.compositions_colour(row.n)
            face = colour if row.pair == "additive" else "white"
            place = max(row.relative_width, EXACT), row.cpu_seconds
            axes.plot(*place, marker, color=colour, markerfacecolor=face, markersize=4.5)
            if row.valid not in (True, "True"):
                axes.plot(*place, "x", color="#d55e00", markersize=7)
    drawing.log_axes(axes, "xy")
    axes.set(xlabel=r"width of the interval of $\delta$ over $\delta$", ylabel="processor seconds")
    if len(absent) == len(ACCOUNTANTS):
        drawing.note(axes, "no measurement")
        return absent
    look = {"linestyle": "none", "color": "grey"}
    handles = [drawing.entry(name, marker=marker, **look) for name, marker in ACCOUNTANTS.items() if name not in absent]
    handles.append(drawing.entry("open: DP-SGD", marker="o", markerfacecolor="white", **look))
    handles.append(drawing.entry("misses ours", marker="x", linestyle="none", color="#d55e00"))
    drawing.plain_ticks(axes.yaxis)
    handles += drawing.compositions_handles(table["n"])
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.08), ncols=3, fontsize="x-small")
    return absent


def caption(training: pd.DataFrame, accountants: pd.DataFrame, absent: list[str]) -> str:
    """What was measured, at which size, and the ratios."""
    sizes = training.iloc[0]
    words = [
        f"(a) Seconds per training epoch (forward, backward and step) for one noise, by loss and half-width r, at"
        f" 2N = {sizes['cells']} cells, K = {sizes['stacked']} sigmoids and n = {sizes['compositions']}; batches of"
        f" {training['batch'].max()} noises on {training['threads'].max()} threads, single noises on one."
    ]
    for column, text in (
        ("ratio", "Dense automatic differentiation takes {} times as long as ours."),
        ("batch_share", "A batch takes {} of the time of its noises one after another on one thread."),
        ("core_ratio", "The GPU has {} times the throughput of one host core."),
        ("peak_mib", "Peak memory of our runs: {} MiB."),
        ("peer_peak_mib", "Peak memory of the dense peer: {} MiB."),
    ):
        known = drawing.positive(training[column])
        if np.isfinite(known).any():
            words.append(text.format(drawing.between(known)))
    words.append("(b) Processor seconds from a pair of distributions to both bounds of delta, one order.")
    for method in ACCOUNTANTS:
        rows = accountants[(accountants["method"] == method) & accountants["cpu_seconds"].notna()]
        if len(rows):
            wrong = len(rows) - sum(valid in (True, "True") for valid in rows["valid"])
            words.append(
                f"{method}: {drawing.between(rows['cpu_seconds'])} s for relative widths"
                f" {drawing.between(rows['relative_width'])}, {wrong} of {len(rows)} intervals apart from ours."
            )
    if absent:
        reasons = pd.concat([training["reason"], accountants["reason"]]).dropna().unique()
        words.append(f"Not measured here: {'; '.join(absent)} (reasons given: {'; '.join(map(str, reasons))}).")
    words.append("Times are of the machine that drew this figure.")
    return " ".join(words)


if __name__ == "__main__":
    run(draw)
