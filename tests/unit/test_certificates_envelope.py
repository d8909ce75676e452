"""Envelope bounds and their tightening: no noise lies below them, and what exists is never proven impossible."""

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optnoise.accounting import delta_bounds
from optnoise.baselines import staircase, truncated_gaussian, truncated_laplace, uniform
from optnoise.certificates import hockey_stick, linear_program
from optnoise.envelope import Envelope, Pair, envelope, lower_hull, pair_of_curves
from optnoise.envelope_programs import Cap, Problem, certified_contradiction, discretise, quantised
from optnoise.grid import Grid
from optnoise.lower_bounds import delta_lower, epsilon_lower, impossible_region, utility_lower
from optnoise.pairs import in_order, worst_case_pair
from optnoise.tightening import Effort, convex, lattice_delta, plain_envelope, prove_impossible, raised

GRID = Grid(12.0, 96)
NOISES = {
    "gaussian": truncated_gaussian(GRID, 3.0),
    "narrow gaussian": truncated_gaussian(GRID, 0.4),
    "laplace": truncated_laplace(GRID, 2.0),
    "staircase": staircase(GRID, 0.5),
    "uniform": uniform(GRID),
    "n = 1 optimum": linear_program(GRID, loss="l1", epsilon=0.3, delta=0.05).noise,
}
QUICK = Effort(programs=6, nodes=40, keys=5, slopes=8, rounds=2)
LEAST = Effort(programs=4, nodes=24, keys=3, slopes=4, rounds=1)


@lru_cache
def bound_for(loss: str, pair: str, utility: float) -> Envelope:
    problem = Problem.of(GRID, loss=loss, pair=pair, q=0.2 if pair == "subsampled" else None)
    return envelope(problem, utility, programs=8, nodes=48)


def assert_above(p: np.ndarray, grid: Grid, bound: Envelope) -> None:
    """The noise's hockey-stick curve is above the bound's at every node and between, and so are its deltas."""
    problem = bound.problem
    pair = worst_case_pair(p, grid, pair=problem.pair, q=problem.q)
    for order, curve in bound.curves.items():
        a, b = in_order(*pair, order)
        nodes = np.exp(bound.step * np.arange(len(curve)))
        for gamma in np.concatenate([nodes, (nodes[1:] + nodes[:-1]) / 2]):
            assert hockey_stick(a, b, gamma) >= np.interp(gamma, nodes, curve) - 1e-14
    for n in (1, 12):
        upper = max(delta_bounds(*in_order(*pair, order), 0.3, n).upper for order in ("A/B", "B/A"))
        assert bound.delta(0.3, n) <= upper


@pytest.mark.parametrize("loss", ["l1", "l2"])
@pytest.mark.parametrize("pair", ["additive", "subsampled"])
@pytest.mark.parametrize("name", list(NOISES))
def test_no_known_noise_lies_below_the_envelope(name, pair, loss):
    p = NOISES[name]
    assert_above(p, GRID, bound_for(loss, pair, float(p @ GRID.cost(loss))))


@settings(max_examples=8, deadline=None)
@given(
    falls=st.lists(st.floats(0, 1), min_size=24, max_size=24).filter(lambda v: sum(v) > 1e-3),
    loss=st.sampled_from(["l1", "l2"]),
    pair=st.sampled_from(["additive", "subsampled"]),
)
def test_no_random_monotone_noise_lies_below_the_envelope(falls, loss, pair):
    grid = Grid(12.0, 48)
    half = np.cumsum(np.array(falls) ** 3)
    p = np.concatenate([half, half[::-1]]) / (2 * half.sum())
    width = float(p @ grid.cost(loss)) ** (1 if loss == "l1" else 0.5)
    for level in (1.0, 2.0, 3.0, 4.5, 6.5, 9.0, 12.0):  # few envelopes serve all noises: u is only an upper limit
        if width <= level:
            assert_above(p, grid, bound_for(loss, pair, level ** (1 if loss == "l1" else 2)))
            return


def test_finer_programs_give_a_higher_bound_below_the_optimum():
    problem = Problem.of(GRID, loss="l1")
    optimum = linear_program(GRID, loss="l1", epsilon=0.3, delta=0.05)
    coarse = envelope(problem, optimum.utility, programs=4, nodes=48).delta(0.3)
    fine = envelope(problem, optimum.utility, programs=24, nodes=192, resolution=2).delta(0.3)
    assert coarse <= fine <= 0.05
    assert fine >= 0.95 * 0.05


@pytest.mark.parametrize("order", ["A/B", "B/A"])
def test_any_step_function_gives_a_bound(order):
    """Random proofs hold, too: nothing depends on a solver."""
    problem = Problem(10.0, 1.0, "l1", "subsampled", 0.3)
    space = discretise(problem, 2.0)
    rng = np.random.default_rng(7)
    x = np.arange(1, 41) / 4
    certificate = space.propose(order, 1.1)
    for _ in range(20):
        lam = quantised(rng.random(len(space.bins) - 1) ** 3)
        inner, outer = space.integrals(lam)
        zero = np.zeros_like(inner)
        trial = type(certificate)(inner, outer, zero, zero, float(rng.random() * 0.3), 0.0)
        alpha, beta = problem.combination(1.1, order)
        value = space.bound(trial, alpha, beta)[0]
        for t in x:  # the uniform noise on [-t, t] at its own utility is weaker than the budget
            if t / 2 <= 2.0:
                overlap = max(0.0, 2 * t - 1) / (2 * t)
                q = 0.3
                if order == "A/B":
                    h = (1 - overlap) * max(0.0, 1 - 1.1 * (1 - q)) + overlap * max(0.0, 1 - 1.1)
                else:
                    h = (1 - overlap) * (q + max(0.0, 1 - q - 1.1)) + overlap * max(0.0, 1 - 1.1)
                assert value <= h + 1e-14


def test_the_pair_of_a_curve_has_that_curve():
    step = 0.05
    nodes = np.exp(step * np.arange(30))
    curve = np.maximum(0.2 - 0.4 * (nodes - 1) + 0.2 * (nodes - 1) ** 2, 0.0)
    curve[-1] = 0.0
    curve = np.minimum.accumulate(curve)
    pair = pair_of_curves(curve, curve, step)
    a, b = pair.first("A/B"), pair.second("A/B")
    assert a.sum() == pytest.approx(1, abs=1e-11)
    assert b.sum() == pytest.approx(1, abs=1e-11)
    hull = convex({"A/B": curve}, step)["A/B"]
    for gamma, value in zip(nodes, hull, strict=True):
        assert hockey_stick(a, b, gamma) <= value
        assert hockey_stick(a, b, gamma) == pytest.approx(value, abs=3e-3)


def exact_curve(pair: Pair, order: str, gamma: Fraction) -> Fraction:
    """sum max(0, first - gamma second) of the pair, in rational arithmetic."""
    ratios = [Fraction(g) for g in pair.gamma]
    right, left = ([Fraction(m) for m in masses] for masses in (pair.right, pair.left))
    high, low = (right, left) if order == "A/B" else (left, right)
    first = [g * m for g, m in zip(ratios, high, strict=True)] + low
    second = high + [g * m for g, m in zip(ratios, low, strict=True)]
    first, second = [*first, 1 - sum(first)], [*second, 1 - sum(second)]
    assert first[-1] >= 0 and second[-1] >= 0
    return sum(max(Fraction(0), a - gamma * b) for a, b in zip(first, second, strict=True))


@settings(max_examples=60, deadline=None)
@given(
    step=st.sampled_from([0.004, 0.05, 0.4, 1.3]),
    steep=st.lists(st.floats(0, 12), min_size=2, max_size=25),
    decades=st.floats(0, 40),
    symmetric=st.booleans(),
    seed=st.integers(0, 2**20),
)
def test_the_exact_curve_of_a_pair_is_nowhere_above_the_bounds(step, steep, decades, symmetric, seed):
    """Bounds that fall over many decades, on lattices up to e^32: no rounding may show in the lesser order."""
    rng = np.random.default_rng(seed)
    falls = np.array(steep) * decades / sum(steep) if sum(steep) > 0 else np.zeros(len(steep))
    ab = rng.random() * 10.0 ** -np.cumsum(falls)
    ba = ab if symmetric else ab * 10.0 ** -(3 * rng.random(len(ab)))
    for half in (ab, ba):
        half[-1] = 0.0
    pair = pair_of_curves(ab, ba, step)
    nodes = [Fraction(float(g)) for g in np.exp(step * np.arange(len(ab)))]
    for order, half in (("A/B", ab), ("B/A", ba)):
        half = [max(ab[0], ba[0]), *half[1:]]
        for gamma, value in zip(nodes, half, strict=True):
            assert exact_curve(pair, order, gamma) <= Fraction(float(value))
        for left, right, one, other in zip(nodes, nodes[1:], half, half[1:], strict=False):
            middle = (Fraction(float(one)) + Fraction(float(other))) / 2
            assert exact_curve(pair, order, (left + right) / 2) <= middle
        exact = [g * Fraction(m) for g, m in zip(nodes[1:], pair.right if order == "A/B" else pair.left, strict=True)]
        assert all(Fraction(m) <= e for m, e in zip(pair.first(order)[len(exact) + 1 :], exact, strict=True))
        other_order = "B/A" if order == "A/B" else "A/B"
        assert all(Fraction(m) >= e for m, e in zip(pair.second(other_order)[len(exact) - 1 :: -1], exact, strict=True))


def test_the_pair_of_two_curves_stays_below_both():
    """The lesser half is used for what it is worth."""
    step = 0.05
    nodes = np.exp(step * np.arange(30))
    ab, ba = np.maximum(0.2 - 0.25 * (nodes - 1), 0.0), np.maximum(0.2 - 0.1 * (nodes - 1), 0.0)
    ab[-1] = ba[-1] = 0.0
    pair = pair_of_curves(ab, ba, step)
    for order, half in (("A/B", ab), ("B/A", ba)):
        a, b = pair.first(order), pair.second(order)
        assert a.sum() == pytest.approx(1, abs=1e-11) and b.sum() == pytest.approx(1, abs=1e-11)
        assert all(hockey_stick(a, b, gamma) <= value for gamma, value in zip(nodes, half, strict=True))
    assert hockey_stick(pair.first("B/A"), pair.second("B/A"), nodes[5]) == pytest.approx(ba[5], rel=0.1)


@pytest.mark.parametrize("q", [1.0, 0.1, 0.01])
@pytest.mark.parametrize("loss", ["l1", "l2"])
def test_steep_staircases_are_not_proven_impossible(loss, q):
    """Noise far narrower than the sensitivity, whose delta at a large epsilon is next to nothing."""
    grid = Grid(20.0, 1080)
    cells = np.abs(np.arange(1080) - 539.5)
    p = np.exp(-6.5 * np.ceil(np.maximum(cells - 0.5, 0) / 27))
    p /= p.sum()
    utility = float(p @ grid.cost(loss)) * 1.2
    problem = Problem.of(grid, loss=loss, pair="subsampled", q=q)
    pair = worst_case_pair(p, grid, pair="subsampled", q=q)
    bound = envelope(problem, utility, programs=6, nodes=60)
    for epsilon in (4.231, 6.6):
        for n in (1, 2, 8):
            delta = max(float(delta_bounds(*in_order(*pair, order), epsilon, n).upper) for order in ("A/B", "B/A"))
            assert bound.delta(epsilon, n) <= delta
    target = {"delta": 1e-30, "epsilon": 6.6, "compositions": 1, "effort": LEAST}
    assert not prove_impossible(problem, utility, **target).impossible


@pytest.mark.parametrize("utility", [0.03, 0.01, 0.001])
@pytest.mark.parametrize("pair", ["additive", "subsampled"])
def test_nothing_is_proven_to_have_a_delta_above_one(pair, utility):
    problem = Problem(20.0, 1.0, "l1", pair, 1.0 if pair == "subsampled" else None)
    for n in (1, 4):
        found = prove_impossible(problem, utility, delta=1.0, epsilon=5.0, compositions=n, effort=LEAST)
        assert not found.impossible and found.floor <= 1.0


@pytest.mark.parametrize("half_width", [1.0, 2.0])
@pytest.mark.parametrize("sensitivity", [1.0, 3.0])
@pytest.mark.parametrize("pair", ["additive", "subsampled"])
def test_short_ranges(pair, sensitivity, half_width):
    """The uniform noise on the range bounds from above what is proven from below."""
    problem = Problem(half_width, sensitivity, "l1", pair, 0.5 if pair == "subsampled" else None)
    whole = min(1.0, sensitivity / (2 * half_width)) * (0.5 if pair == "subsampled" else 1.0)
    bound = envelope(problem, half_width / 2, programs=6, nodes=48)
    for n in (1, 2):
        lower = bound.delta(1.0, n)
        assert 0 <= lower <= 1 - (1 - whole) ** n + 1e-12


def test_lower_hull_is_convex_and_below():
    rng = np.random.default_rng(3)
    x = np.sort(rng.random(50))
    y = rng.random(50)
    hull = lower_hull(x, y)
    assert (hull <= y + 1e-15).all()
    assert (np.diff(np.diff(hull) / np.diff(x)) >= -1e-9).all()
    assert (hull == y).sum() >= 2


@pytest.mark.parametrize("n", [1, 3, 20])
@pytest.mark.parametrize("pair", ["additive", "subsampled"])
def test_lattice_composition_agrees_with_the_accountant(n, pair):
    problem = Problem(50.0, 1.0, "l1", pair, 0.5 if pair == "subsampled" else None)
    bound = envelope(problem, 2.0, programs=6, nodes=40)
    found = lattice_delta(bound, 0.3, n)(bound.curves)
    expected = float(bound.delta(0.3, n))
    assert found == pytest.approx(expected, rel=2e-3)
    assert found <= max(delta_bounds(*bound.atoms(order), 0.3, n).upper for order in ("A/B", "B/A"))


def test_raised_curves_stay_below_tangents():
    """A curve raised to a line is nowhere above the larger of the curve and any tangent in the slope interval."""
    step = 0.02
    gamma = np.exp(step * np.arange(60))
    curve = np.maximum(0.3 - 0.5 * (gamma - 1) + 0.2 * (gamma - 1) ** 2, 0) * 0.5
    curve[-1] = 0.0
    curve = convex({"A/B": curve}, step)["A/B"]
    fine = np.linspace(1, gamma[-1], 5001)
    assert raised(curve, gamma, 20, 0.2, -0.1, -0.2, symmetric=True)[0] > curve[0]
    assert raised(curve, gamma, 20, 0.2, -0.1, -0.2, symmetric=False)[0] == curve[0]
    for node in (5, 20, 40):
        v = 1.3 * curve[node] + 0.01
        for flatter, steeper in ((-0.05, -0.1), (-0.2, -0.3), (0.0, -0.5)):
            new = raised(curve, gamma, node, v, flatter, steeper)
            assert (new >= curve).all()
            for slope in np.linspace(steeper, flatter, 5):
                most = np.maximum(np.interp(fine, gamma, curve), v + slope * (fine - gamma[node]))
                assert (lower_hull(fine, np.interp(fine, gamma, new)) <= most + 1e-12).all()


@pytest.mark.parametrize("loss", ["l1", "l2"])
@pytest.mark.parametrize("n", [1, 8])
def test_what_exists_is_never_proven_impossible(loss, n):
    problem = Problem.of(GRID, loss=loss)
    for name in ("gaussian", "laplace", "n = 1 optimum"):
        a, b = worst_case_pair(NOISES[name], GRID, pair="additive")
        goal = {"epsilon": 0.3, "compositions": n}
        delta = float(delta_bounds(a, b, 0.3, n).upper)
        utility = float(NOISES[name] @ GRID.cost(loss))
        assert not prove_impossible(problem, utility, delta=delta, **goal, effort=QUICK).impossible


@pytest.mark.parametrize("q", [0.1, 0.9])
def test_what_exists_is_never_proven_impossible_when_subsampled(q):
    problem = Problem.of(GRID, loss="l1", pair="subsampled", q=q)
    pair = worst_case_pair(NOISES["gaussian"], GRID, pair="subsampled", q=q)
    delta = max(float(delta_bounds(*in_order(*pair, order), 0.05, 8).upper) for order in ("A/B", "B/A"))
    utility = float(NOISES["gaussian"] @ GRID.cost("l1"))
    target = {"epsilon": 0.05, "compositions": 8, "effort": QUICK}
    assert not prove_impossible(problem, utility, delta=delta, **target).impossible
    assert prove_impossible(problem, utility, delta=0.1 * delta, **target).impossible


def test_tightening_proves_more_than_the_plain_envelope():
    problem = Problem(80.0, 1.0, "l2")
    effort = Effort(programs=8, nodes=64, keys=8, slopes=16, rounds=1)
    target = {"delta": 1e-6, "epsilon": 2.2, "compositions": 10}
    first = plain_envelope(problem, 25.0, effort)
    assert first.delta(2.2, 10) < 1e-6
    assert prove_impossible(problem, 25.0, **target, effort=effort, first=first).impossible


def test_contradiction_needs_caps_that_contradict():
    problem = Problem(20.0, 1.0, "l1")
    space = discretise(problem, 3.0)
    p = truncated_laplace(Grid(20.0, 160), 2.8)
    assert p @ Grid(20.0, 160).cost("l1") < 3.0
    a, b = worst_case_pair(p, Grid(20.0, 160), pair="additive")
    gammas = [1.0, 1.1, 1.2]
    met = [Cap("A/B", i, g, hockey_stick(a, b, g)) for i, g in enumerate(gammas)]
    assert not certified_contradiction(space, met)
    least = envelope(problem, 3.0, programs=6, nodes=40).curves["A/B"][0]
    assert certified_contradiction(space, [Cap("A/B", 0, 1.0, 0.9 * least)])


def test_searches_bracket_a_gaussian():
    grid = Grid(40.0, 320)
    p = truncated_gaussian(grid, 5.0)
    a, b = worst_case_pair(p, grid, pair="additive")
    delta = float(delta_bounds(a, b, 1.0, 8).upper)
    utility = float(p @ grid.cost("l1"))
    problem = Problem.of(grid, loss="l1")
    goal = {"epsilon": 1.0, "compositions": 8}
    plain = utility_lower(problem, delta=delta, known=utility, tolerance=0.2, **goal)
    tight = utility_lower(problem, delta=delta, known=utility, effort=QUICK, tolerance=0.2, **goal)
    assert utility / 1.5 <= plain <= utility
    assert plain / 1.2 <= tight <= utility
    assert 0 < delta_lower(problem, utility, **goal) <= delta
    assert 0 < epsilon_lower(problem, utility, delta=delta, compositions=8) <= 1.0
    region = impossible_region(problem, [utility], epsilon=1.0, compositions=[1, 8], programs=8, nodes=48)
    assert region.shape == (1, 2)
    assert region[0, 0] <= region[0, 1] <= delta


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss": "l3"}, "loss: 'l3'"),
        ({"pair": "triple"}, "pair: 'triple'"),
        ({"pair": "subsampled", "q": 1.5}, "q: 1.5"),
        ({"half_width": -1.0}, "half_width: -1.0"),
        ({"sensitivity": 0.0}, "sensitivity: 0.0"),
        ({"sensitivity": math.nan}, "sensitivity: nan"),
    ],
)
def test_bad_problems_are_named(arguments, message):
    with pytest.raises(ValueError, match=f"^{message} is not allowed"):
        Problem(**({"half_width": 5.0, "sensitivity": 1.0, "loss": "l1"} | arguments))


def test_bad_utility_is_named():
    with pytest.raises(ValueError, match=r"^utility: -1.0 is not allowed"):
        envelope(Problem(math.inf, 1.0, "l1"), -1.0)
