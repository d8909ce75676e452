"""The n = 1 linear program: reference values, its proof, and noises that cannot beat it."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from optnoise.accounting import delta_bounds
from optnoise.baselines import staircase, truncated_gaussian, truncated_laplace, uniform
from optnoise.certificates import certified_values, hockey_stick, linear_program, vertex_values
from optnoise.grid import Grid
from optnoise.pairs import in_order, worst_case_pair

REFERENCE = Path(__file__).parent.parent / "data" / "linear_program.csv"
ROWS = [
    (row, loss)
    for row in csv.DictReader(REFERENCE.read_text().splitlines())
    for loss, column in (("l1", "u1"), ("l2", "u2"))
    if row[column]
]


@pytest.mark.parametrize(("row", "loss"), ROWS)
def test_optimum_agrees_with_the_reference_values(row, loss):
    half_width, per_unit = float(row["half_width"]), int(row["cells_per_unit"])
    grid = Grid(half_width, round(2 * half_width * per_unit))
    epsilon, delta = float(row["epsilon"]), float(row["delta"])
    found = linear_program(grid, loss=loss, epsilon=epsilon, delta=delta)
    expected = float(row["u1" if loss == "l1" else "u2"])
    assert found.utility == pytest.approx(expected, rel=1e-4)
    assert found.lower <= found.utility <= found.lower * (1 + 1e-8)
    assert found.delta <= delta * (1 + 1e-9)
    a, b = worst_case_pair(found.noise, grid, pair="additive")
    assert delta_bounds(a, b, epsilon).lower <= delta * (1 + 1e-9)
    assert math.fsum(found.noise) == pytest.approx(1, abs=1e-12)
    np.testing.assert_array_equal(found.noise, found.noise[::-1])
    assert (np.diff(found.noise[grid.half_cells :]) <= 0).all()


def test_pointy_tower_beats_every_monotone_noise():
    delta = 0.05024268401170476
    free = linear_program(Grid(5.0, 6000), loss="l1", epsilon=0.3, delta=delta, monotone=False)
    assert free.utility == pytest.approx(1.8481, abs=5e-4)
    assert free.lower > 1.847
    assert free.delta <= delta * (1 + 1e-9)


@pytest.mark.parametrize("order", ["A/B", "B/A"])
def test_subsampled_optimum_meets_both_orders(order):
    grid = Grid(10.0, 400)
    found = linear_program(grid, loss="l1", epsilon=0.2, delta=0.01, pair="subsampled", q=0.2)
    first, second = in_order(*worst_case_pair(found.noise, grid, pair="subsampled", q=0.2), order)
    assert hockey_stick(first, second, math.exp(0.2)) <= 0.01 * (1 + 1e-9)
    assert found.utility <= found.lower * (1 + 1e-8)
    alone = linear_program(grid, loss="l1", epsilon=0.2, delta=0.01, pair="subsampled", q=0.2, orders=[order])
    assert alone.lower <= found.utility * (1 + 1e-9)


def test_sampling_everything_is_the_additive_pair():
    grid = Grid(10.0, 200)
    whole = linear_program(grid, loss="l2", epsilon=0.3, delta=0.01, pair="subsampled", q=1.0)
    plain = linear_program(grid, loss="l2", epsilon=0.3, delta=0.01)
    assert whole.utility == pytest.approx(plain.utility, rel=1e-7)


@pytest.mark.parametrize("loss", ["l1", "l2"])
def test_no_analytic_noise_lies_below_the_bound(loss):
    grid, epsilon = Grid(20.0, 800), 0.3
    noises = [truncated_gaussian(grid, sigma) for sigma in (1.0, 3.0, 6.0)]
    noises += [truncated_laplace(grid, scale) for scale in (1.0, 3.0, 6.0)]
    noises += [staircase(grid, epsilon), uniform(grid)]
    for p in noises:
        delta = hockey_stick(*worst_case_pair(p, grid, pair="additive"), math.exp(epsilon))
        found = linear_program(grid, loss=loss, epsilon=epsilon, delta=delta)
        assert found.lower <= (p @ grid.cost(loss)) * (1 + 1e-12)
        free = linear_program(grid, loss=loss, epsilon=epsilon, delta=delta, monotone=False)
        assert free.lower <= found.utility * (1 + 1e-9)


@pytest.mark.parametrize("monotone", [True, False])
@pytest.mark.parametrize("order", ["A/B", "B/A"])
def test_values_at_the_vertices_are_those_of_the_vertices(monotone, order):
    grid = Grid(3.0, 12)
    rng = np.random.default_rng(5)
    rho = rng.random(grid.cells + grid.shift)
    values, errors = certified_values(rho, 1.3, grid, order, pair="subsampled", q=0.3, monotone=monotone)
    for t in range(grid.half_cells):
        p = np.zeros(grid.cells)
        if monotone:
            p[grid.half_cells - 1 - t : grid.half_cells + 1 + t] = 1 / (2 * t + 2)
        else:
            p[[grid.half_cells - 1 - t, grid.half_cells + t]] = 0.5
        first, second = in_order(*worst_case_pair(p, grid, pair="subsampled", q=0.3), order)
        assert abs(values[t] - rho @ (first - 1.3 * second)) <= errors[t]
        assert vertex_values(grid.cost("l1"), grid, monotone)[t] == pytest.approx(p @ grid.cost("l1"))


def test_a_delta_below_the_edges_is_refused():
    with pytest.raises(ValueError, match=r"delta: 0.001 .* no noise on this grid"):
        linear_program(Grid(2.0, 40), loss="l1", epsilon=0.3, delta=0.001)


@pytest.mark.parametrize(("name", "value"), [("epsilon", -0.1), ("delta", 1.5), ("delta", math.nan)])
def test_bad_input_is_named(name, value):
    arguments = {"epsilon": 0.3, "delta": 0.01} | {name: value}
    with pytest.raises(ValueError, match=f"^{name}: "):
        linear_program(Grid(5.0, 50), loss="l1", **arguments)
