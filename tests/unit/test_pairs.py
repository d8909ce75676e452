"""Worst-case pairs and the pull-back of gradients: the definition, and that one is the transpose of the other."""

from __future__ import annotations

import numpy as np
import pytest

from optnoise.backend import to_host
from optnoise.grid import Grid
from optnoise.pairs import ORDERS, additive_pair, in_order, pull_back, subsampled_pair, worst_case_pair

GRID = Grid(3, 12)  # the sensitivity spans 2 cells


def test_pairs_are_what_they_are_defined_to_be():
    p = np.arange(1.0, 13.0)
    a, b = additive_pair(p, GRID)
    assert a.tolist() == [*p, 0, 0] and b.tolist() == [0, 0, *p]
    first, second = subsampled_pair(p, GRID, 0.25)
    assert first.tolist() == a.tolist()
    assert second.tolist() == [0.75 * x + 0.25 * y for x, y in zip(a, b, strict=True)]
    assert in_order("A", "B", "A/B") == ("A", "B") and in_order("A", "B", "B/A") == ("B", "A")


@pytest.mark.parametrize(("pair", "q"), [("additive", None), ("subsampled", 0.2), ("subsampled", 1.0)])
def test_pull_back_is_the_transpose(pair, q, xp):
    """<dA, A(p)> + <dB, B(p)> = <pull_back(dA, dB), p> for every p and every gradient, with leading axes kept."""
    rng = np.random.default_rng(0)
    p = rng.random((3, GRID.cells))
    da, db = rng.standard_normal((2, 3, GRID.cells + GRID.shift))
    a, b = (to_host(x) for x in worst_case_pair(xp.asarray(p), GRID, pair=pair, q=q))
    back = to_host(pull_back(xp.asarray(da), xp.asarray(db), GRID, pair=pair, q=q))
    assert back.shape == p.shape
    np.testing.assert_allclose((back * p).sum(axis=-1), (da * a + db * b).sum(axis=-1), rtol=1e-12)


@pytest.mark.parametrize("q", [None, 0.0, -0.1, 1.1, float("nan")])
def test_sampling_rates_that_are_refused(q):
    p = np.full(GRID.cells, 1 / GRID.cells)
    with pytest.raises(ValueError, match=r"q: .* is not allowed; the sampling rate must be in"):
        subsampled_pair(p, GRID, q)
    with pytest.raises(ValueError, match=r"q: .* is not allowed"):
        pull_back(np.zeros(14), np.zeros(14), GRID, pair="subsampled", q=q)


def test_other_bad_input_is_named():
    p = np.full(GRID.cells, 1 / GRID.cells)
    with pytest.raises(ValueError, match="pair: 'laplace' is not allowed; choose one of additive, subsampled"):
        worst_case_pair(p, GRID, pair="laplace")
    with pytest.raises(ValueError, match="pair: 'laplace' is not allowed"):
        pull_back(np.zeros(14), np.zeros(14), GRID, pair="laplace")
    with pytest.raises(ValueError, match="order: 'A' is not allowed; choose one of A/B, B/A"):
        in_order(p, p, "A")
    with pytest.raises(ValueError, match="p: 5 masses do not fit the grid, which has 12 cells"):
        additive_pair(p[:5], GRID)
    assert ORDERS == ("A/B", "B/A")
