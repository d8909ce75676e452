"""Drawing shared by the figure scripts: densities, delta curves, frontiers, legends, and numbers for captions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optnoise import style
from optnoise.pairs import ORDERS
from optnoise.storage import NoiseFile

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_STEPS = 4000  # more cells than this are averaged in groups: no page resolves them
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
LEAST_DELTA = 1e-20  # where axes of delta(eps) end
VISIBLE = 0.02  # a relative width of the interval of delta from which the band can be seen

# --- Data ---------------------------------------------------------------------------------------------------------


def positive(values: Any) -> np.ndarray:
    """The values as floats with everything that a logarithmic axis cannot show (0, below, not finite) as NaN."""
    values = np.asarray(values, dtype=float)
    return np.where(np.isfinite(values) & (values > 0), values, np.nan)


def ratio(values: Any, base: Any) -> np.ndarray:
    """``values / base`` for a logarithmic axis: NaN where it is 0, infinite or undefined."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        return positive(np.asarray(values, dtype=float) / np.asarray(base, dtype=float))


def evenly(values: Iterable[Any], count: int) -> list[Any]:
    """At most ``count`` of the sorted distinct values, evenly spread, the first and the last among them."""
    values = sorted(set(values))
    if len(values) <= count:
        return values
    return [values[round(i * (len(values) - 1) / (count - 1))] for i in range(count)]


def density(noise: NoiseFile, index: int) -> tuple[np.ndarray, np.ndarray]:
    """(values, edges) of one noise's density; shapes (m,) and (m + 1,), m at most ``MOST_STEPS``.

    Finer grids are averaged over whole groups of cells, which keeps every mass.
    """
    p = noise.p[index]
    half_width = noise.meta["grid"]["half_width"]
    group = math.ceil(p.size / MOST_STEPS)
    starts = np.arange(0, p.size, group)
    edges = np.linspace(-half_width, half_width, p.size + 1)[np.append(starts, p.size)]
    return np.add.reduceat(p, starts) / np.diff(edges), edges


def half_width(noise: NoiseFile) -> float:
    """The half-width of a noise file's grid."""
    return noise.meta["grid"]["half_width"]


def by_half_width(noises: Mapping[str, NoiseFile]) -> dict[float, tuple[str, NoiseFile]]:
    """Half-width -> (run, noise), rising."""
    return dict(sorted((half_width(noise), (run, noise)) for run, noise in noises.items()))


def trained(noises: Mapping[str, NoiseFile], name: str) -> dict[str, Any]:
    """Run -> the training parameter ``name`` (:class:`optnoise.spec.TrainSpec`)."""
    return {run: noise.meta["spec"][name] for run, noise in noises.items()}


def common_epsilon(by_experiment: Mapping[str, Iterable[float] | Mapping[str, NoiseFile]]) -> float:
    """The one epsilon of all that a figure compares, by experiment: epsilons of its table, or its noises.

    Noises have the epsilon that they were trained for, staircases the one they were made for. Raises ``ValueError``
    where there are several: a figure must not compare noises for one epsilon with noises for another.
    """
    found = {}
    for name, values in by_experiment.items():
        if isinstance(values, Mapping):
            values = [noise.meta["spec"].get("epsilon", noise.weights[0]) for noise in values.values()]
        found[name] = sorted({float(value) for value in values})
    every = {value for values in found.values() for value in values}
    if len(every) != 1:
        parts = "; ".join(f"{name} has {listing(f'{value:g}' for value in values)}" for name, values in found.items())
        raise ValueError(f"epsilon: this figure compares noises for one epsilon, and {parts}")
    return every.pop()


def single_delta(noise: NoiseFile, epsilon: float, shift: int | None = None) -> float:
    """The evaluator's upper bound for one release of an additive noise, at ``epsilon`` exactly.

    ``shift``: the distance of the two results in cells; without it, the sensitivity.
    """
    from optnoise.grid import Grid
    from optnoise.shifts import shifted_delta

    shift = Grid(**noise.meta["grid"]).shift if shift is None else shift
    return shifted_delta(noise.p[0], shift, epsilon=epsilon, n=1, buckets=250_000)[1] if shift else 0.0


def total_variation(p: np.ndarray, q: np.ndarray) -> float:
    """Half the L1 distance of two mass vectors on the same grid."""
    return 0.5 * float(np.abs(p - q).sum())


def both_orders(table: pd.DataFrame) -> pd.DataFrame:
    """The evaluation table with one row where it had one for each order: the larger delta of the two counts."""
    keys = [name for name in table.columns if name not in ("order", "delta_lower", "delta_upper", "delta_inf")]
    bounds = ["delta_lower", "delta_upper", "delta_inf"]
    return table.groupby(keys, dropna=False, sort=False, as_index=False)[bounds].max()


def delta_ratio(learned: pd.DataFrame, baseline: pd.DataFrame) -> np.ndarray:
    """delta_upper of each learned row over the baseline's at equal utility loss; NaN where that cannot be told.

    The baseline is interpolated, log delta over log utility, by monotone cubics: within 1 % on ten points a decade.
    From two points before its minimum on, where it turns sharply and the points may miss the least delta, it is NaN.
    """
    from scipy.interpolate import PchipInterpolator

    rows = baseline.sort_values("utility").drop_duplicates("utility")
    rows = rows[(rows["utility"] > 0) & (rows["delta_running"] > 0)]
    if len(rows) == 0:
        return np.full(len(learned), np.nan)
    x, y = np.log(rows["utility"].to_numpy()), np.log(rows["delta_running"].to_numpy())
    # Gaussians far narrower than a cell differ in their last digits only.
    apart = np.diff(x, prepend=-math.inf) > 1e-9
    x, y = x[apart], y[apart]
    last = int(np.argmin(y))
    if last < 3:
        return np.full(len(learned), np.nan)
    at = np.log(positive(learned["utility"]))
    known = (at >= x[0]) & (at <= x[last - 2])
    base = PchipInterpolator(x[: last + 1], y[: last + 1])(np.where(known, at, x[0]))
    return np.where(known, ratio(learned["delta_upper"], np.exp(base)), np.nan)


def noise_of(noises: Mapping[str, NoiseFile], row: Any) -> tuple[NoiseFile, int]:
    """(noise file, index) of the noise that a row of a frontier or evaluation table describes."""
    noise = noises[row.run]
    return noise, int(np.argmin(np.abs(noise.weights - row.weight)))


# --- Words --------------------------------------------------------------------------------------------------------


def number(value: float, digits: int = 3) -> str:
    """A number for a caption or a legend: three digits, powers of ten written out."""
    if not math.isfinite(value):
        return str(value)
    text = f"{value:.{digits}g}"
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    return f"{mantissa}e{int(exponent)}"


def between(values: Iterable[float]) -> str:
    """The range of some numbers in words, without NaN; ``none`` for no number."""
    values = [value for value in values if math.isfinite(value)]
    if not values:
        return "none"
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def listing(items: Iterable[Any]) -> str:
    """Items in words: ``1, 2 and 4``."""
    items = [str(item) for item in items]
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else "none"


# --- Lines --------------------------------------------------------------------------------------------------------


def draw_density(axes: Axes, noise: NoiseFile, index: int = 0, **look: Any) -> None:
    """One noise's density as a step line; cells without mass are left out, which suits a logarithmic axis."""
    values, edges = density(noise, index)
    draw_steps(axes, values, edges, **look)


def draw_steps(axes: Axes, values: np.ndarray, edges: np.ndarray, **look: Any) -> None:
    """Values (m,) on cells with ``edges`` (m + 1,), as a line; much faster than a patch of thousands of steps."""
    values = positive(values)
    axes.plot(edges, np.append(values, values[-1]), drawstyle="steps-post", **look)


def draw_delta(axes: Axes, x: Any, lower: Any, upper: Any, **look: Any) -> None:
    """The upper bound of delta over ``x``, with a band down to the lower bound where the two differ visibly."""
    x, lower, upper = np.asarray(x, dtype=float), np.asarray(lower, dtype=float), positive(upper)
    (line,) = axes.plot(x, upper, **look)
    if np.any(upper - lower > VISIBLE * upper):
        floor = np.nanmin(upper) if np.isfinite(upper).any() else np.nan
        below = np.where(lower > 0, lower, floor)  # a lower bound of 0 has no place on a logarithmic axis
        axes.fill_between(x, below, upper, color=line.get_color(), alpha=0.25, linewidth=0)


def draw_frontier(axes: Axes, table: pd.DataFrame, colour: Any) -> None:
    """Non-dominated learned noises of one group: a line, full markers with weight decay, open ones without."""
    rows = table[table["status"] == "frontier"].sort_values("utility")
    axes.plot(rows["utility"], positive(rows["delta_upper"]), color=colour, linewidth=0.8, zorder=3)
    _draw_points(axes, rows, colour)


def draw_raw(axes: Axes, table: pd.DataFrame, colour: Any) -> None:
    """Every learned noise of one group: markers as in :func:`draw_frontier`, crosses where it collapsed."""
    collapsed = table["status"] == "collapsed"
    _draw_points(axes, table[~collapsed], colour)
    rows = table[collapsed]
    axes.plot(rows["utility"], positive(rows["delta_upper"]), "x", color=colour, markersize=3.5, zorder=3)


def _draw_points(axes: Axes, rows: pd.DataFrame, colour: Any) -> None:
    decay = rows["decay"].astype(bool)
    for part, face in ((rows[decay], colour), (rows[~decay], "white")):
        axes.plot(
            *(part["utility"], positive(part["delta_upper"]), "o"),
            **{"color": colour, "markerfacecolor": face, "markeredgewidth": 0.7, "markersize": 2.8, "zorder": 3},
        )


def draw_baseline(axes: Axes, table: pd.DataFrame, colour: Any, *, raw: bool = False, family: str = "gaussian") -> None:
    """A baseline of one group over its parameter: the running minimum of delta, or with ``raw`` delta itself."""
    rows = table.sort_values("utility")
    delta = rows["delta_upper" if raw else "delta_running"]
    axes.plot(rows["utility"], positive(delta), color=colour, linestyle=style.method_line(family), linewidth=1.1)


# --- Axes ---------------------------------------------------------------------------------------------------------


def note(axes: Axes, text: str) -> None:
    """Say in an empty panel why it is empty."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", fontsize="small", wrap=True)


def log_axes(axes: Axes, which: str) -> None:
    """Make the axes named in ``which`` (``x``, ``y`` or ``xy``) logarithmic, leaving out what they cannot show."""
    for name in which:
        getattr(axes, f"set_{name}scale")("log", nonpositive="mask")


def frame(axes: Axes, x: Any, y: Any, *, padding: float = 0.15) -> None:
    """Limit logarithmic axes to the positive data given, with a margin of ``padding`` of each axis's decades."""
    for values, limit in ((x, axes.set_xlim), (y, axes.set_ylim)):
        values = positive(values)
        values = np.log10(values[np.isfinite(values)])
        if values.size:
            margin = max(padding * (values.max() - values.min()), 0.15)
            limit(10 ** (values.min() - margin), 10 ** (values.max() + margin))


def finish(figure: Figure) -> Figure:
    """Give every logarithmic axis few, round ticks that fit its limits; the last thing to call on a figure."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() != "log":
                continue
            low, high = sorted(axis.get_view_interval())
            if low <= 0:  # nothing drawn on it
                low, high = 0.1, 1.0
                axis.set_view_interval(low, high, ignore=True)
            labelled, unlabelled = log_ticks(low, high)
            axis.set_major_locator(FixedLocator(labelled))
            axis.set_minor_locator(FixedLocator(unlabelled) if len(unlabelled) else NullLocator())
            axis.set_minor_formatter(NullFormatter())
            decades = math.log10(high) - math.log10(low)
            axis.set_major_formatter(
                FuncFormatter(_power if decades > 2.5 or low < 1e-3 else lambda value, _: f"{value:g}")
            )
    return figure


def log_ticks(low: float, high: float) -> tuple[list[float], list[float]]:
    """(labelled, unlabelled) ticks of a logarithmic axis from ``low`` to ``high``, at most six labelled.

    Powers of ten, or a regular choice of them, on many decades; 1, 2 and 5 times them on few; round steps on a
    fraction of one.
    """
    from matplotlib.ticker import MaxNLocator

    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last - first >= 2:
        step = math.ceil((last - first + 1) / 6)
        powers = [10.0**k for k in range(first, last + 1)]
        chosen = [10.0**k for k in range(first, last + 1) if k % step == 0]
        return chosen, [power for power in powers if power not in chosen] if step < 4 else []
    fine = [m * 10.0**k for k in range(first - 1, last + 2) for m in range(1, 10)]
    fine = [value for value in fine if low <= value <= high]
    coarse = [value for value in fine if round(value / 10 ** math.floor(math.log10(value) + 1e-9)) in (1, 2, 5)]
    if len(coarse) > 6:
        coarse = [value for value in coarse if round(value / 10 ** math.floor(math.log10(value) + 1e-9)) in (1, 3)]
    if len(coarse) >= 2:
        return coarse, [value for value in fine if value not in coarse]
    steps = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [float(value) for value in steps if low <= value <= high], []


def _plain(value: float, _: int) -> str:
    return f"{value:g}"


def _power(value: float, _: int) -> str:
    """A power of ten with superscript figures, which draw much faster than mathematical text."""
    exponent = math.floor(math.log10(value) + 1e-9)
    mantissa = round(value / 10.0**exponent)
    power = "10" + str(exponent).translate(SUPERSCRIPTS)
    return power if mantissa == 1 else f"{mantissa}·{power}"


def fit_height(axes: Axes) -> None:
    """Limit a logarithmic y axis to what the lines show within the limits of x."""
    low, high = axes.get_xlim()
    inside = [line.get_ydata()[(line.get_xdata() >= low) & (line.get_xdata() <= high)] for line in axes.lines]
    shown = positive(np.concatenate(inside))
    if np.isfinite(shown).any():
        axes.set_ylim(np.nanmin(shown) / 2, np.nanmax(shown) * 2)


def at_most_one(axes: Axes) -> None:
    """End an axis of deltas at 1, a little above, however much margin it had."""
    if axes.get_ylim()[0] > 0:
        axes.set_ylim(top=min(axes.get_ylim()[1], 2.0))


def compositions_handles(ns: Iterable[int]) -> list[Any]:
    """Legend entries for numbers of compositions."""
    from matplotlib.lines import Line2D

    return [Line2D([], [], color=style.compositions_colour(n), label=f"$n = {n}$") for n in sorted(set(ns))]


def entry(label: str, **look: Any) -> Any:
    """One legend entry; black unless told."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **{"color": "black", "label": label} | look)


def frontier_handles(*, line: bool = True) -> list[Any]:
    """Legend entries for learned noises with and without weight decay and for truncated Gaussians."""
    dot = {"marker": "o", "linestyle": "-" if line else "none", "linewidth": 0.8, "markeredgewidth": 0.7}
    return [
        entry("learned, weight decays", **dot),
        entry("learned, constant weight", markerfacecolor="white", **dot),
        entry(style.method_name("gaussian"), linestyle=style.method_line("gaussian")),
    ]


def legend_below(figure: Figure, handles: Sequence[Any], columns: int) -> None:
    """A legend for the whole figure, below its panels, where it covers nothing."""
    figure.legend(handles=list(handles), loc="outside lower center", ncols=columns)


# --- DP-SGD: figures 4 and 10 -------------------------------------------------------------------------------------


def sgd_panels(
    axes: Sequence[Axes],
    noises: Mapping[str, NoiseFile],
    table: pd.DataFrame,
    order: str,
    matched: pd.DataFrame | None,
) -> None:
    """Three panels for one method and loss: densities, delta_{A/B} and delta_{B/A} over eps, by n.

    ``noises``, ``table``: all the experiment's; those trained on ``order`` are drawn. ``matched``: the evaluation of
    truncated Gaussians of equal utility, or None.
    """
    orders, compositions = trained(noises, "order"), trained(noises, "compositions")
    runs = sorted((run for run in noises if orders[run] == order), key=compositions.get)
    for run in runs:
        draw_density(axes[0], noises[run], color=style.compositions_colour(compositions[run]), linewidth=0.9)
    for panel, evaluated in zip(axes[1:], ORDERS, strict=True):
        for source, line in ((table, "-"), (matched, style.method_line("gaussian"))):
            for run in runs if source is not None else ():
                rows = source[(source["run"] == run) & (source["order"] == evaluated)].sort_values("eps")
                look = {"color": style.compositions_colour(compositions[run]), "linestyle": line, "linewidth": 0.9}
                draw_delta(panel, rows["eps"], rows["delta_lower"], rows["delta_upper"], **look)
    for panel in axes[1:]:
        panel.set_xlim(table["eps"].min(), table["eps"].max())
    for panel in axes:
        log_axes(panel, "y")
        if not runs:
            note(panel, f"no noise trained on {order}")


def limit_deltas(panels: Iterable[Axes], tables: Iterable[pd.DataFrame]) -> None:
    """End the axes of delta curves two decades below the least learned delta drawn, and never below ``LEAST_DELTA``.

    Truncated Gaussians, and delta_{A/B} of a subsampled pair, which is exactly 0 from some eps on, fall without end.
    """
    drawn = np.concatenate([positive(table["delta_upper"]) for table in tables])
    least = max(LEAST_DELTA, float(np.nanmin(drawn, initial=1.0)) / 100)
    for panel in panels:
        panel.set_ylim(least, 2.0)


def sgd_labels(axes: np.ndarray) -> None:
    """Axis labels of rows of densities, delta_{A/B} and delta_{B/A}."""
    for panel in axes[0]:
        panel.set_xlabel("noise $x$ (sensitivities)")
    for row, label in zip(axes, ("density", r"$\delta_{A/B}$", r"$\delta_{B/A}$"), strict=True):
        row[0].set_ylabel(label)
    for panel in axes[1:].flat:
        panel.set_xlabel(r"$\varepsilon$")


def sgd_handles() -> list[Any]:
    """Legend entries for learned noise and Gaussians of equal utility."""
    return [entry("learned"), entry("truncated Gaussian, equal utility", linestyle=style.method_line("gaussian"))]


def sgd_sentence(noises: Mapping[str, NoiseFile], table: pd.DataFrame, order: str, matched: pd.DataFrame | None) -> str:
    """Utility losses over n, and where the learned noise's delta is below that of its Gaussian; both orders' larger."""
    orders = trained(noises, "order")
    curves = both_orders(table[table["run"].map(orders) == order])
    widths = curves.groupby("n")[["u1", "rms"]].first()
    text = f"E|x| {between(widths['u1'])} and rms {between(widths['rms'])} for n = {listing(widths.index)}"
    if matched is None:
        return f"{text}."
    pairs = curves.merge(both_orders(matched), on=["run", "n", "eps"], suffixes=("", "_gaussian"))
    below = pairs["delta_upper"] < pairs["delta_upper_gaussian"]
    near = pairs[np.isclose(pairs["eps"], _nearest(pairs["eps"], trained(noises, "epsilon")))]
    ratios = ratio(near["delta_upper"], near["delta_upper_gaussian"])
    return (
        f"{text}; delta is below the Gaussian's at {int(below.sum())} of {len(pairs)} points, and"
        f" {between(ratios)} times it at eps = {number(near['eps'].iloc[0])}, next to the eps trained for."
    )


def _nearest(values: pd.Series, epsilons: Mapping[str, float]) -> float:
    epsilon = next(iter(epsilons.values()))
    return float(values.iloc[int(np.argmin(np.abs(values.to_numpy() - epsilon)))])


# --- Further experiments: small multiples -------------------------------------------------------------------------


def small_multiples(count: int, *, columns: int, height: float = 1.9, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure as wide as the page with ``count`` panels in rows of at most ``columns``, ``height`` inches each."""
    import matplotlib.pyplot as plt

    columns = min(columns, count)
    rows = math.ceil(count / columns)
    figure, axes = plt.subplots(rows, columns, figsize=(style.WIDTH, height * rows + 0.5), squeeze=False, **options)
    for spare in axes.flat[count:]:
        spare.remove()
    return figure, list(axes.flat[:count])


def log_interpolated(at: Any, x: Any, y: Any) -> np.ndarray:
    """y at the positive places ``at``, straight between the points (x, y) on logarithmic axes; NaN outside them."""
    at, x, y = (np.asarray(values, dtype=float) for values in (at, x, y))
    known = (x > 0) & (y > 0) & np.isfinite(x) & np.isfinite(y)
    if not known.any():
        return np.full(at.shape, np.nan)
    order = np.argsort(x[known], kind="stable")
    x, y = np.log(x[known][order]), np.log(y[known][order])
    return np.exp(np.interp(np.log(at), x, y, left=np.nan, right=np.nan))


def plain_ticks(axis: Any) -> None:
    """Ticks of a logarithmic axis as plain numbers, as sparse as leaves at least three; call it after the limits."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter

    low, high = sorted(axis.get_view_interval())
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 2, 3, 4, 6, 8), range(1, 10)):
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [digit * 10.0**decade for decade in decades for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= 3:
            break
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FixedFormatter([f"{tick:g}" for tick in ticks]))
    axis.set_minor_formatter(NullFormatter())
