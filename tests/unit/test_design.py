"""From a requirement to noise: it is met, by less than analytic noise needs, or what cannot be is said."""

from __future__ import annotations

import numpy as np
import pytest

from optnoise.accounting import delta_bounds
from optnoise.design import analytic, design
from optnoise.grid import Grid
from optnoise.pairs import additive_pair

FAST = {"tolerance": 0.05, "growth": 3.0}


@pytest.mark.parametrize("loss", ["l1", "l2"])
@pytest.mark.parametrize(("n", "epsilon", "delta"), [(1, 0.5, 1e-3), (4, 1.0, 1e-2)])
def test_the_requirement_is_met_by_less_than_a_gaussian_needs(n: int, epsilon: float, delta: float, loss: str) -> None:
    grid = Grid(30, 120)
    goal = {"epsilon": epsilon, "delta": delta, "compositions": n}
    found = design(grid, loss=loss, **goal, **FAST)
    assert delta_bounds(*additive_pair(found.noise, grid), epsilon, n).upper <= delta
    assert found.utility == pytest.approx(found.noise @ grid.cost(loss))
    assert found.utility < analytic(grid, "gaussian", loss=loss, **goal).utility


@pytest.mark.parametrize(("grid", "epsilon", "delta"), [(Grid(20, 40), 8.0, 0.01), (Grid(4, 16), 8.0, 0.1)])
def test_noise_narrower_than_the_sensitivity(grid: Grid, epsilon: float, delta: float) -> None:
    found = design(grid, loss="l1", epsilon=epsilon, delta=delta, compositions=2, **FAST)
    assert delta_bounds(*additive_pair(found.noise, grid), epsilon, 2).upper <= delta


def test_the_narrowest_noise_where_it_is_enough() -> None:
    grid = Grid(4, 8)
    found = design(grid, loss="l1", epsilon=0.1, delta=0.9999, compositions=2, **FAST)
    assert np.count_nonzero(found.noise) == 2


def test_what_no_noise_reaches_is_said() -> None:
    with pytest.raises(ValueError, match=r"^delta: 1e-06 is not reached on \[-2, 2\] .* widen the range"):
        design(Grid(2, 8), loss="l1", epsilon=0.1, delta=1e-6, compositions=4, **FAST)
    with pytest.raises(ValueError, match=r"^epsilon: 800.0 is not allowed here"):
        design(Grid(4, 16), loss="l1", epsilon=800.0, delta=0.3, compositions=1)
