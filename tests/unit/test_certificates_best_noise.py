"""Smooth convex programs over noises: the moments optimum with its gap, and best responses for many rounds."""

import math

import numpy as np
import pytest

from optnoise.accounting import delta_bounds, epsilon_bounds
from optnoise.baselines import truncated_gaussian, truncated_laplace
from optnoise.best_noise import _Composed as Composed
from optnoise.best_noise import best_noise, held_rounds, least_change, moments_optimum
from optnoise.certificates import linear_program
from optnoise.envelope_programs import Problem
from optnoise.grid import Grid
from optnoise.pairs import additive_pair, in_order, worst_case_pair
from optnoise.tightening import QUICK, plain_envelope, prove_impossible

GRID = Grid(20.0, 160)


def moments_delta(p, grid, *, moment, epsilon, n, pair="additive", q=None, order="A/B"):
    a, b = in_order(*worst_case_pair(p, grid, pair=pair, q=q), order)
    both = (a > 0) & (b > 0)
    total = math.fsum(a[both] * (a[both] / b[both]) ** moment)
    return math.exp(-moment * epsilon) * total**n + n * math.fsum(a[b == 0])


@pytest.mark.parametrize(
    ("loss", "pair", "q", "order"),
    [
        ("l1", "additive", None, "A/B"),
        ("l2", "additive", None, "A/B"),
        ("l1", "subsampled", 0.3, "A/B"),
        ("l1", "subsampled", 0.3, "B/A"),
    ],
)
def test_moments_optimum_is_proven_and_beats_analytic_noise(loss, pair, q, order):
    goal = {"moment": 3.0, "epsilon": 1.5}
    setting = {"pair": pair, "q": q, "order": order}
    gaussian = truncated_gaussian(GRID, 2.5)
    utility = float(gaussian @ GRID.cost(loss))
    found = moments_optimum(GRID, loss=loss, utility=utility, compositions=4, **goal, **setting)
    assert found.utility <= utility
    assert found.lower <= found.delta <= found.lower * (1 + 1e-4)
    assert found.delta == pytest.approx(moments_delta(found.noise, GRID, n=4, **goal, **setting), rel=1e-12)
    assert (np.diff(found.noise[GRID.half_cells :]) <= 0).all()
    scale = 2.5
    while truncated_laplace(GRID, scale) @ GRID.cost(loss) > utility:
        scale *= 0.99
    for p in (gaussian, truncated_laplace(GRID, scale)):
        assert found.lower <= moments_delta(p, GRID, n=4, **goal, **setting)
    a, b = in_order(*worst_case_pair(found.noise, GRID, pair=pair, q=q), order)
    assert delta_bounds(a, b, goal["epsilon"], 4).lower <= found.delta


def test_a_utility_that_no_noise_has_is_refused():
    with pytest.raises(ValueError, match=r"^utility: 0.01 is not allowed"):
        moments_optimum(GRID, loss="l1", utility=0.01, moment=2.0, epsilon=1.0, compositions=2)
    with pytest.raises(ValueError, match=r"^moment: -1.0 is not allowed"):
        moments_optimum(GRID, loss="l1", utility=2.0, moment=-1.0, epsilon=1.0, compositions=2)


def test_least_change_is_the_linear_programs_value():
    """Against a brute-force search over all pairs of vertices: a limit on utility needs no more than two."""
    grid = Grid(3.0, 12)
    rng = np.random.default_rng(2)
    for _ in range(10):
        g = rng.normal(size=12)
        p = truncated_gaussian(grid, 1.0)
        utility = float(p @ grid.cost("l1"))
        vertices = []
        for t in range(1, 7):
            v = np.zeros(12)
            v[6 - t : 6 + t] = 1 / (2 * t)
            vertices.append(v)
        best = math.inf
        for v in vertices:
            for w in vertices:
                cv, cw = v @ grid.cost("l1"), w @ grid.cost("l1")
                if cv <= utility:
                    share = 1.0 if cw <= utility else (utility - cv) / (cw - cv)
                    for s in (0.0, share):
                        best = min(best, g @ ((1 - s) * v + s * w))
        found = least_change(p, g, grid, "l1", utility)
        assert found <= best - g @ p + 1e-12
        assert found == pytest.approx(best - g @ p, abs=1e-7)


def test_held_rounds_give_the_composed_delta():
    p = truncated_gaussian(GRID, 2.0)
    a, b = additive_pair(p, GRID)
    both = (a > 0) & (b > 0)
    psi = held_rounds(Composed.of((a, b), 4), 1.0)
    x = a[both] / b[both]
    value, slope, curve = psi(x)
    whole = Composed.of((a, b), 5).delta(1.0)
    expected = delta_bounds(a, b, 1.0, 5)
    assert expected.lower * (1 - 1e-4) <= whole <= expected.upper * (1 + 1e-4)
    # Rounds with distinguishing events among the others are left out: their mass is tiny here.
    assert float(b[both] @ value) == pytest.approx(whole, rel=1e-3)
    h = 1e-4
    assert slope == pytest.approx((psi(x + h)[0] - psi(x - h)[0]) / (2 * h), rel=1e-3, abs=1e-8)
    assert (curve > 0).all()


def test_best_responses_improve_on_gaussian_and_laplace():
    n, epsilon = 6, 1.0
    gaussian = truncated_gaussian(GRID, 3.0)
    utility = float(gaussian @ GRID.cost("l1"))
    found = best_noise(GRID, loss="l1", utility=utility, compositions=n, epsilon=epsilon, responses=4)
    assert found.utility <= utility * (1 + 1e-9)
    pair = additive_pair(found.noise, GRID)
    assert found.delta == delta_bounds(*pair, epsilon, n).upper
    # The strongest check of the lower bounds: a noise that is close to them.
    problem = Problem.of(GRID, loss="l1")
    first = plain_envelope(problem, found.utility, QUICK)
    assert first.delta(epsilon, n) <= found.delta
    target = {"delta": found.delta, "epsilon": epsilon, "compositions": n, "effort": QUICK, "first": first}
    assert not prove_impossible(problem, found.utility, **target).impossible
    assert prove_impossible(problem, found.utility / 1.4, **(target | {"first": None})).impossible
    others = [truncated_laplace(GRID, s) for s in (2.0, 2.2, 2.4)] + [gaussian]
    for p in others:
        if p @ GRID.cost("l1") <= utility:
            assert found.delta < delta_bounds(*additive_pair(p, GRID), epsilon, n).lower
    again = best_noise(
        GRID, loss="l1", utility=utility, compositions=n, delta=found.delta, start=found.noise, responses=1
    )
    assert again.epsilon <= epsilon * (1 + 1e-4)
    assert again.epsilon == epsilon_bounds(*additive_pair(again.noise, GRID), found.delta, n).upper


def test_best_noise_needs_one_goal_and_many_rounds():
    with pytest.raises(ValueError, match=r"^epsilon: give either"):
        best_noise(GRID, loss="l1", utility=2.0, compositions=4)
    with pytest.raises(ValueError, match=r"^compositions: 1 is not allowed here"):
        best_noise(GRID, loss="l1", utility=2.0, compositions=1, epsilon=1.0)


def test_moments_noise_cannot_beat_the_linear_program():
    found = moments_optimum(GRID, loss="l1", utility=2.0, moment=5.0, epsilon=0.5, compositions=1)
    delta = float(delta_bounds(*additive_pair(found.noise, GRID), 0.5).upper)
    assert linear_program(GRID, loss="l1", epsilon=0.5, delta=delta).lower <= found.utility
