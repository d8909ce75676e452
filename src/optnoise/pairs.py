"""Worst-case pairs (A, B) of a mechanism from its noise, and the pull-back of gradients to the noise.

Both distributions have 2N + k outcomes, k being the sensitivity in cells:

- ``additive``: A = (p, 0_k), B = (0_k, p);
- ``subsampled`` (DP-SGD, sampling rate q): A = (p, 0_k), B = (1 - q) (p, 0_k) + q (0_k, p).

Order ``A/B`` bounds sum_o max(0, A(o) - e^eps B(o)); ``B/A`` swaps the two. All functions keep leading
axes, so that a batch of noises gives a batch of pairs.
"""

from __future__ import annotations

from typing import Any

from optnoise.backend import array_namespace
from optnoise.grid import Grid

PAIRS = ("additive", "subsampled")
ORDERS = ("A/B", "B/A")


def additive_pair(p: Any, grid: Grid, shift: int | None = None) -> tuple[Any, Any]:
    """(A, B) for one noisy release; ``p`` has shape (..., 2N), the results (..., 2N + k).

    shift: in cells, of answers that differ by less than the sensitivity; by default k, the sensitivity.
    """
    xp = array_namespace(p)
    _check(p, grid)
    padding = xp.zeros((*p.shape[:-1], grid.shift if shift is None else shift), dtype=p.dtype)
    return xp.concatenate([p, padding], axis=-1), xp.concatenate([padding, p], axis=-1)


def subsampled_pair(p: Any, grid: Grid, q: float, shift: int | None = None) -> tuple[Any, Any]:
    """(A, B) for one step of DP-SGD with sampling rate ``q`` in (0, 1] (Abadi et al. 2016)."""
    check_sampling_rate(q)
    a, shifted = additive_pair(p, grid, shift)
    return a, (1.0 - q) * a + q * shifted


def worst_case_pair(
    p: Any, grid: Grid, *, pair: str, q: float | None = None, shift: int | None = None
) -> tuple[Any, Any]:
    """The pair named by ``pair``: ``additive`` (``q`` unused) or ``subsampled``; shift: see :func:`additive_pair`."""
    if pair == "additive":
        return additive_pair(p, grid, shift)
    if pair == "subsampled":
        return subsampled_pair(p, grid, q, shift)
    raise ValueError(f"pair: {pair!r} is not allowed; choose one of {', '.join(PAIRS)}")


def in_order(a: Any, b: Any, order: str) -> tuple[Any, Any]:
    """(first, second) distribution of ``order``: ``A/B`` keeps them, ``B/A`` swaps them."""
    if order not in ORDERS:
        raise ValueError(f"order: {order!r} is not allowed; choose one of {', '.join(ORDERS)}")
    return (a, b) if order == "A/B" else (b, a)


def pull_back(da: Any, db: Any, grid: Grid, *, pair: str, q: float | None = None) -> Any:
    """Gradient with respect to p, shape (..., 2N), from the gradients with respect to A and B.

    The transpose of the (linear) pair map: each gradient is read at the places where p was written.
    """
    cells = grid.cells
    if pair == "additive":
        return da[..., :cells] + db[..., grid.shift :]
    if pair == "subsampled":
        check_sampling_rate(q)
        return da[..., :cells] + (1.0 - q) * db[..., :cells] + q * db[..., grid.shift :]
    raise ValueError(f"pair: {pair!r} is not allowed; choose one of {', '.join(PAIRS)}")


def check_sampling_rate(q: float | None) -> None:
    """Raise ``ValueError`` unless 0 < q <= 1."""
    if q is None or not 0 < q <= 1:
        raise ValueError(f"q: {q!r} is not allowed; the sampling rate must be in (0, 1]")


def _check(p: Any, grid: Grid) -> None:
    if p.shape[-1] != grid.cells:
        raise ValueError(f"p: {p.shape[-1]} masses do not fit the grid, which has {grid.cells} cells")
