"""The grid a noise lives on: cells, their width, and the sensitivity as a whole number of cells.

A grid with half-width r and 2N cells covers [-r, r]. Cells have width h = r/N and centres
x_i = (i - N - 1/2) h for i = 1..2N. A noise is a vector of 2N cell masses; its density on a cell is p_i / h.
Cell centres are the reading of the paper's grid that is symmetric and makes cell averages exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Grid:
    """A symmetric grid of ``cells`` = 2N equal cells on [-half_width, half_width].

    half_width, sensitivity: in the units of the query. ``cells`` must be even and ``sensitivity`` a whole
    number of cells, at least one and at most the grid's full width. Raises ``ValueError`` with one line
    that names the field otherwise.
    """

    half_width: float
    cells: int
    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        for name in ("half_width", "sensitivity"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
                raise ValueError(f"{name}: {value!r} is not allowed; it must be a positive finite number")
        if isinstance(self.cells, bool) or not isinstance(self.cells, int) or self.cells < 2 or self.cells % 2:
            raise ValueError(f"cells: {self.cells!r} is not allowed; it must be an even integer, at least 2")
        exact = self.sensitivity * self.cells / (2 * self.half_width)
        shift = round(exact)
        if shift < 1 or abs(exact - shift) > 1e-9 * max(1.0, exact):
            near = self._nearest_cells()
            fit = f"the nearest that fit are {' and '.join(map(str, near))}" if near else "no number of cells fits"
            raise ValueError(
                f"cells: {self.cells} cells on [-{self.half_width:g}, {self.half_width:g}] make sensitivity "
                f"{self.sensitivity:g} span {exact:.6g} cells, which must be a whole number; {fit}"
            )
        if shift > self.cells:
            raise ValueError(
                f"sensitivity: {self.sensitivity:g} exceeds the grid's full width {2 * self.half_width:g}; "
                "every outcome would be distinguishing"
            )

    def _nearest_cells(self) -> list[int]:
        def first(start: int, step: int, stop: int) -> int | None:
            for cells in range(start, stop, step):
                shift = self.sensitivity * cells / (2 * self.half_width)
                if round(shift) >= 1 and abs(shift - round(shift)) <= 1e-9 * max(1.0, shift):
                    return cells
            return None

        found = first(self.cells - 2, -2, 0), first(self.cells + 2, 2, self.cells + 2_000_000)
        return [cells for cells in found if cells is not None]

    @cached_property
    def half_cells(self) -> int:
        """N, the number of cells on each side of zero."""
        return self.cells // 2

    @cached_property
    def cell_width(self) -> float:
        """h = r/N, in the units of the query."""
        return self.half_width / self.half_cells

    @cached_property
    def shift(self) -> int:
        """k, the number of cells that the sensitivity spans."""
        return round(self.sensitivity * self.cells / (2 * self.half_width))

    @cached_property
    def centres(self) -> np.ndarray:
        """Cell centres, shape (2N,), read-only, exactly antisymmetric."""
        half = (np.arange(self.half_cells) + 0.5) * self.cell_width
        centres = np.concatenate([-half[::-1], half])
        centres.flags.writeable = False
        return centres

    def cost(self, loss: str) -> np.ndarray:
        """The exact cell averages of |x| (``l1``) or x^2 (``l2``), shape (2N,), read-only."""
        x = self.centres
        if loss == "l1":
            values = np.abs(x)
        elif loss == "l2":
            values = x * x + self.cell_width**2 / 12
        else:
            raise ValueError(f"loss: {loss!r} is not allowed; choose l1 or l2")
        values.flags.writeable = False
        return values


def utilities(p: np.ndarray, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """(u_1, u_2) = (E|x|, E x^2) of masses ``p`` with shape (..., 2N), each of shape (...)."""
    return p @ grid.cost("l1"), p @ grid.cost("l2")
