"""How figures look: one colour for each n, method and family in every figure, sizes for print, symbols for axes.

Colours are those of seaborn's colour-blind-safe palette and viridis (ordered, and readable in grey). An unknown
name is an error, not grey.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 6.8  # inches, the text width of a page
COLUMN = 3.3  # inches, half of it

METHOD_NAMES = {
    "adp": "learned, ADP",
    "ma": "learned, MA",
    "pdp": "learned, PDP",
    "gaussian": "truncated Gaussian",
    "laplace": "truncated Laplace",
    "staircase": "truncated staircase",
    "uniform": "uniform",
    "cnn": "towers, CNN",
    "free": "towers, free masses",
}
METHOD_COLOURS = {
    "adp": "#0173b2",
    "ma": "#de8f05",
    "pdp": "#029e73",
    "gaussian": "#000000",
    "laplace": "#cc78bc",
    "staircase": "#949494",
    "uniform": "#d55e00",
    "cnn": "#56b4e9",
    "free": "#ca9161",
}
METHOD_LINES = {
    "adp": "-",
    "ma": "--",
    "pdp": "-.",
    "gaussian": ":",
    "laplace": (0, (3, 1, 1, 1)),
    "staircase": "-",
    "uniform": (0, (5, 1)),
    "cnn": "-",
    "free": "--",
}
ORDER_LINES = {"A/B": "--", "B/A": "-"}
ORDER_COLOURS = {"A/B": "#d55e00", "B/A": "#0173b2"}
UTILITY_AXIS = {"l1": r"utility loss $E|x|$ (sensitivities)", "l2": r"utility loss $\sqrt{E\,x^2}$ (sensitivities)"}


def method_colour(name: str) -> str:
    """The colour of a method, model or family."""
    return _look_up(METHOD_COLOURS, name, "method")


def method_name(name: str) -> str:
    """The name of a method, model or family in a legend."""
    return _look_up(METHOD_NAMES, name, "method")


def method_line(name: str) -> object:
    """The line style of a method, model or family, so that grey prints can be read."""
    return _look_up(METHOD_LINES, name, "method")


def order_colour(order: str) -> str:
    """The colour of the order that a noise was trained on."""
    return _look_up(ORDER_COLOURS, order, "order")


def compositions_colour(n: int) -> tuple[float, float, float, float]:
    """The colour of a number of compositions: viridis over log2 n from 1 to 128, the same in every figure."""
    import math

    import matplotlib

    if n < 1:
        raise ValueError(f"n: {n!r} is not allowed; it must be at least 1")
    return matplotlib.colormaps["viridis"](min(0.9, 0.9 * math.log2(n) / 7))


def epsilon_colour(epsilon: float) -> tuple[float, float, float, float]:
    """The colour of an epsilon where several are shown: plasma from 0 to 1, never mistaken for an n."""
    import matplotlib

    if not epsilon >= 0:
        raise ValueError(f"epsilon: {epsilon!r} is not allowed; it must be at least 0")
    return matplotlib.colormaps["plasma"](min(0.9, 0.9 * epsilon))


def rank_colour(rank: int, ranks: int) -> tuple[float, float, float, float]:
    """The colour of the ``rank``-th of some ordered values, such as utility weights: cividis, ordered in grey too."""
    import matplotlib

    if not 0 <= rank < ranks:
        raise ValueError(f"rank: {rank!r} is not allowed; it must be at least 0 and below {ranks}")
    return matplotlib.colormaps["cividis"](0.9 * rank / max(1, ranks - 1))


def panel_letter(axes: Axes, letter: str, text: str = "") -> None:
    """Write a panel's letter, and after it a few words, above its upper left corner."""
    axes.set_title(f"$\\bf{{({letter})}}$ {text}".rstrip(), loc="left", fontsize="medium")


def _look_up(table: dict, name: str, what: str) -> object:
    if name not in table:
        raise KeyError(f"{what}: {name!r} has no style; known are {', '.join(table)}")
    return table[name]
