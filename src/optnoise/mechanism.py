"""A mechanism to take away: noise as integer cell weights, drawn exactly, with a card that states its guarantee.

Why integers. A guarantee about masses says nothing about a sampler that rounds: adding floating-point noise to a
floating-point value leaves the noise's low bits visible, and those reveal the value (Mironov 2012). Here the weights
are integers that sum to a power of two, the draw is a comparison of random bits with integers, noise is a whole
number of steps, and the query must lie on the grid, so that the set of possible outputs is the same for all inputs.

The guarantee is computed for exactly the distribution that is drawn: weight / 2^bits is a float64 without rounding.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import secrets
from bisect import bisect_right
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from optnoise.grid import Grid, utilities

MOST_DIGITS = 300  # of a value; larger ones are no float64, and take for ever as text
BITS = 52  # weights up to 2^52 are float64 integers, and so are their cumulative sums


@dataclass(frozen=True, repr=False)
class Mechanism:
    """Additive noise on ``grid`` with integer ``weights`` (2N of them, summing to ``2**bits``) and its ``card``."""

    grid: Grid
    weights: tuple[int, ...]
    bits: int = BITS
    card: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.weights) != self.grid.cells:
            raise ValueError(f"weights: {len(self.weights)} weights do not fit the grid's {self.grid.cells} cells")
        if any(not isinstance(w, int) or isinstance(w, bool) or w < 0 for w in self.weights):
            raise ValueError("weights: every weight must be an integer, at least 0")
        if isinstance(self.bits, bool) or not isinstance(self.bits, int) or not 1 <= self.bits <= BITS:
            raise ValueError(f"bits: {self.bits!r} is not allowed; it must be an integer from 1 to {BITS}")
        if sum(self.weights) != 1 << self.bits:
            raise ValueError(f"weights: they sum to {sum(self.weights)}, and must sum to 2^{self.bits}")
        if self.weights != self.weights[::-1]:
            raise ValueError("weights: they are not symmetric about the centre")

    def __repr__(self) -> str:
        grid, name = self.grid, self.card.get("name", "unnamed")
        return (
            f"<Mechanism {name}: {grid.cells} cells on [-{grid.half_width:g}, {grid.half_width:g}], "
            f"sensitivity {grid.sensitivity:g}, weights sum to 2^{self.bits}>"
        )

    @classmethod
    def from_masses(cls, p: np.ndarray, grid: Grid, *, bits: int = BITS, card: dict | None = None) -> Mechanism:
        """Round symmetric masses ``p`` (2N,) to integer weights.

        Each is rounded down, and what is left goes to the innermost cells, one unit each in turn: zeros at the
        edge stay zeros, no distinguishing mass is added, and noise that falls from the centre still does.
        """
        from optnoise.storage import check_masses

        p = np.asarray(p, dtype=float)
        if p.shape != (grid.cells,):
            raise ValueError(f"p: shape {p.shape} does not fit the grid, which has {grid.cells} cells")
        check_masses(p, "p")
        if np.abs(p - p[::-1]).max() > 1e-9 * p.max():
            raise ValueError("p: the masses are not symmetric about the centre")
        if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= BITS:
            raise ValueError(f"bits: {bits!r} is not allowed; it must be an integer from 1 to {BITS}")
        outwards = [Fraction(float(left)) + Fraction(float(right)) for left, right in zip(p[::-1], p, strict=True)]
        outwards = outwards[grid.half_cells :]  # from the centre outwards, both sides averaged
        total = sum(outwards)
        half = 1 << (bits - 1)
        weights = [math.floor(mass * half / total) for mass in outwards]
        positive = [i for i, weight in enumerate(weights) if weight] or [0]
        missing = half - sum(weights)
        share, rest = divmod(missing, len(positive))
        for place, i in enumerate(positive):
            weights[i] += share + (place < rest)
        return cls(grid, tuple(weights[::-1] + weights), bits, dict(card or {}))

    @property
    def masses(self) -> np.ndarray:
        """The cell masses (2N,) that are drawn from, exactly."""
        return np.array(self.weights, dtype=float) / 2.0**self.bits

    @property
    def step(self) -> Fraction:
        """The unit of :meth:`sample`: half a cell, exactly, in units of the query."""
        return Fraction(self.grid.sensitivity) / (2 * self.grid.shift)

    @cached_property
    def _cumulative(self) -> list[int]:
        return list(accumulate(self.weights))

    def sample(self, size: int) -> np.ndarray:
        """Draw ``size`` noises as whole numbers (int64) of :attr:`step`; all are odd, cells being centred so.

        Each draw takes ``bits`` random bits from the operating system's cryptographic generator (``secrets``) and
        finds its cell by comparing integers. No floating point is involved, and no seed: a seeded draw is no
        privacy. To release a query's value use :meth:`release`, which also keeps the value on the grid.
        """
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0:
            raise ValueError(f"size: {size!r} is not allowed; it must be an integer, at least 0")
        first = 1 - self.grid.cells
        cells = (bisect_right(self._cumulative, secrets.randbits(self.bits)) for _ in range(size))
        return np.fromiter((first + 2 * cell for cell in cells), dtype=np.int64, count=int(size))

    def release(self, value: Any, *, rounding: str | None = None) -> Fraction:
        """The query's ``value`` plus one noise, exact, as a ``Fraction``.

        ``value`` must be a multiple of the cell width: a value between grid points would make outputs possible that
        no neighbouring input can give, or show its low bits through the noise (floating-point attacks on added
        noise). Pass ``rounding="nearest"`` to round it to the grid first; as the sensitivity is a whole number of
        cells, rounding does not raise it. Raises ``ValueError`` otherwise.
        """
        if rounding not in (None, "nearest"):
            raise ValueError(f"rounding: {rounding!r} is not allowed; choose None or 'nearest'")
        exact = _exact(value)
        width = 2 * self.step
        steps = exact / width
        if rounding == "nearest":
            steps = Fraction(math.floor(steps + Fraction(1, 2)))
        if steps.denominator != 1:
            raise ValueError(
                f"value: {value!r} is no multiple of the cell width {width}; round the query to the grid, or ask for "
                "rounding to the nearest (rounding='nearest', --round)"
            )
        return steps * width + int(self.sample(1)[0]) * self.step

    def save(self, path: str | Path) -> None:
        """Write ``path``.csv (cell centres, integer weights) and ``path``.json (the card)."""
        from optnoise.storage import write_json, write_table

        path = Path(path)
        path = path.with_suffix("") if path.suffix in (".csv", ".json") else path
        centres = [float(Fraction(2 * i + 1 - self.grid.cells) * self.step) for i in range(self.grid.cells)]
        write_table(path.with_name(f"{path.name}.csv"), ["x", "weight"], zip(centres, self.weights, strict=True))
        grid = {name: getattr(self.grid, name) for name in ("half_width", "cells", "sensitivity")}
        whole = {**self.card, "grid": grid, "bits": self.bits, "weights sha256": self._digest()}
        write_json(path.with_name(f"{path.name}.json"), whole)

    def _digest(self) -> str:
        """What ties a card to its weights and its grid."""
        grid = self.grid
        text = json.dumps([float(grid.half_width), grid.cells, float(grid.sensitivity), self.bits, self.weights])
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def load(cls, path: str | Path) -> Mechanism:
        """Read what :meth:`save` wrote, from the path of either file; checked, ``ValueError`` with one line."""
        import csv

        path = Path(path)
        path = path.with_suffix("") if path.suffix in (".csv", ".json") else path
        card_path, weights_path = path.with_name(f"{path.name}.json"), path.with_name(f"{path.name}.csv")
        for file in (card_path, weights_path):
            if not file.is_file():
                raise ValueError(f"{file}: no such file; a mechanism is a .json card and a .csv of weights")
        try:
            card = json.loads(card_path.read_text())
            grid, bits = Grid(**card.pop("grid")), card.pop("bits")
            digest = card.pop("weights sha256", None)
        except (KeyError, TypeError, AttributeError, OverflowError, ValueError) as error:
            raise ValueError(f"{card_path}: not a mechanism's card ({type(error).__name__}: {error})") from None
        try:
            with open(weights_path, newline="") as stream:
                weights = tuple(int(row["weight"]) for row in csv.DictReader(stream))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{weights_path}: not a table of weights ({type(error).__name__}: {error})") from None
        try:
            mechanism = cls(grid, weights, bits, card)
        except ValueError as error:
            raise ValueError(f"{weights_path}: {error}") from None
        if digest is not None and digest != mechanism._digest():
            raise ValueError(
                f"{card_path}: its guarantee is not of these weights on this grid; one of them was changed"
            )
        return mechanism


def _exact(value: Any) -> Fraction:
    """The number as a fraction of Python's own integers; NumPy's would overflow in what follows, and leak by it.

    Raises ``ValueError`` for what is no finite number, and for text of more than ``MOST_DIGITS`` digits or powers.
    """
    fault = ValueError(f"value: {str(value)[:40]!r} is not allowed; it must be a finite number below 10^{MOST_DIGITS}")
    if isinstance(value, str):
        found = re.fullmatch(r"\s*[-+]?[0-9_.]+(?:/[0-9_]+|[eE]([-+]?[0-9]+))?\s*", value)
        if found is None or len(value) > MOST_DIGITS or abs(int(found[1] or 0)) > MOST_DIGITS:
            raise fault
    elif isinstance(value, np.generic):
        value = value.item()
    try:
        exact = Fraction(value)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise fault from None
    if abs(exact) >= 10**MOST_DIGITS:
        raise fault
    return Fraction(int(exact.numerator), int(exact.denominator))


def guarantee(
    mechanism: Mechanism, *, epsilon: float, compositions: int, pair: str = "additive", q: float | None = None
) -> dict[str, Any]:
    """Bounds on the mechanism's delta in both orders, and its utilities, for its card (all by the evaluator).

    They hold for answers that differ by any whole number of cells up to the sensitivity.
    """
    from optnoise.accounting import delta_bounds
    from optnoise.pairs import ORDERS, in_order, worst_case_pair
    from optnoise.shifts import deciding_shifts

    p = mechanism.masses
    orders = {order: {"delta_lower": 0.0, "delta_upper": 0.0} for order in ORDERS}
    for shift in deciding_shifts(p, mechanism.grid.shift):
        pair_of_shift = worst_case_pair(p, mechanism.grid, pair=pair, q=q, shift=shift)
        for order, worst in orders.items():
            bounds = delta_bounds(*in_order(*pair_of_shift, order), epsilon, compositions=compositions)
            worst["delta_lower"] = max(worst["delta_lower"], float(bounds.lower))
            worst["delta_upper"] = max(worst["delta_upper"], float(bounds.upper))
    u1, u2 = utilities(p, mechanism.grid)
    used = np.flatnonzero(p)
    reach = float(abs(mechanism.grid.centres[used[0]]) + mechanism.grid.cell_width / 2)
    return {
        "epsilon": epsilon,
        "delta": max(order["delta_upper"] for order in orders.values()),
        "compositions": compositions,
        "pair": pair,
        "q": q,
        "orders": orders,
        "utility": {"mean_absolute_error": float(u1), "root_mean_square_error": float(u2) ** 0.5},
        "range": {"most_error": reach},
    }
