"""Faults that public accountants are known for, and bad input: each must be impossible here."""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

from optnoise.accounting import _compensated_sum, delta_bounds, delta_bounds_of_losses, epsilon_bounds
from optnoise.baselines import truncated_gaussian, truncated_laplace
from optnoise.composition import transform_length
from optnoise.grid import Grid
from optnoise.pairs import additive_pair, subsampled_pair


def gaussian(sigma=4.0, half_width=80.0, cells=1600):
    grid = Grid(half_width, cells)
    return additive_pair(truncated_gaussian(grid, sigma), grid)


def test_no_jumps_near_the_rounding_floor():
    """epsilon as a function of delta, and delta of epsilon, stay smooth through 1e-18 (no floor near 1e-16)."""
    a, b = gaussian()
    deltas = np.logspace(-30, -8, 12)
    found = epsilon_bounds(a, b, deltas, 16, buckets=50_000)
    assert np.all(np.diff(found.upper) < 0) and np.all(np.diff(found.lower) < 0)
    assert np.all(found.upper - found.lower <= 1e-3 * found.upper)
    steps = -np.diff(found.upper)
    assert np.all(np.diff(steps) > 0) and np.all(steps[1:] < 1.2 * steps[:-1])
    curve = delta_bounds(a, b, np.linspace(0.1, 12.0, 500), 16)
    assert curve.upper.min() < 1e-26
    assert np.all((curve.upper - curve.lower)[curve.upper > 1e-40] <= 1e-2 * curve.upper[curve.upper > 1e-40])


@pytest.mark.parametrize("sigma", [0.02, 0.3, 2000.0])
def test_narrow_and_wide_shapes(sigma):
    """The grid of losses follows the shape: one cell wide, a few cells wide, all but flat."""
    a, b = gaussian(sigma=sigma, half_width=50.0, cells=5000)
    for n in (1, 4, 64):
        bounds = delta_bounds(a, b, 0.3, n)
        assert bounds.upper - bounds.lower <= 1e-3 * bounds.upper
        assert bounds.lower >= bounds.distinguishing * (1 - 1e-12)


def test_thin_edges_with_huge_losses():
    """Outcomes of mass 1e-200 with losses of hundreds neither coarsen the lattice nor get lost."""
    a = np.array([0.5, 0.3, 0.2, 1e-9, 1e-200, 1e-250])
    b = np.array([0.3, 0.3, 0.4, 1e-250, 1e-9, 1e-20])
    a, b = a / math.fsum(a), b / math.fsum(b)
    core = delta_bounds(a[:3] / math.fsum(a[:3]), b[:3] / math.fsum(b[:3]), 1.0, 32)
    bounds = delta_bounds(a, b, 1.0, 32)
    assert bounds.upper - bounds.lower <= 1e-4 * bounds.upper
    # The thin outcome adds about 32 1e-9 (1 - delta).
    assert core.lower <= bounds.lower and bounds.upper <= core.upper + 3.3e-8


def test_epsilon_below_the_floor_of_distinguishing_events():
    a, b = gaussian(sigma=10.0, half_width=30.0, cells=600)
    n = 8
    floor = delta_bounds(a, b, 1e6, n)
    assert floor.upper == pytest.approx(floor.distinguishing, rel=1e-9) and floor.distinguishing > 1e-4
    below = epsilon_bounds(a, b, floor.lower / 2, n)
    assert below.upper == below.lower == math.inf
    above = epsilon_bounds(a, b, 2 * floor.upper, n)
    assert 0 < above.lower <= above.upper < math.inf
    mixed = epsilon_bounds(a, b, [0.0, floor.lower / 2, 2 * floor.upper, 1.0], n)
    assert mixed.upper.tolist() == [math.inf, math.inf, above.upper, 0.0]


def test_no_perfect_guarantee_at_the_largest_loss():
    """Just below n times the largest loss delta is tiny but positive; from there on it is exactly zero."""
    p = 0.75
    a, b = np.array([p, 1 - p]), np.array([1 - p, p])
    for n in (1, 2, 7, 64):
        limit = n * math.log(3.0)
        below = delta_bounds(a, b, limit * (1 - 1e-6), n)
        exact = p**n * -math.expm1(-1e-6 * limit)
        assert below.lower <= exact <= below.upper
        assert below.upper > 0
        assert delta_bounds(a, b, limit * (1 + 1e-12) + 1e-12, n).upper == 0.0
    # Bounded losses: epsilon for delta = 0 is their greatest sum.
    none = epsilon_bounds(a, b, 0.0, 2)
    assert none.lower <= 2 * math.log(3.0) <= none.upper <= 2 * math.log(3.0) + 1e-9


def test_a_second_call_changes_nothing():
    a, b = gaussian()
    before = a.copy(), b.copy()
    a.flags.writeable = b.flags.writeable = False
    first = delta_bounds(a, b, np.array([0.3, 1.0]), 16)
    delta_bounds(b, a, 2.0, 3, "pdp", 100)
    epsilon_bounds(a, b, 1e-3, 5, 1000)
    second = delta_bounds(a, b, np.array([0.3, 1.0]), 16)
    assert first.lower.tolist() == second.lower.tolist() and first.upper.tolist() == second.upper.tolist()
    assert np.array_equal(a, before[0]) and np.array_equal(b, before[1])


@pytest.mark.parametrize(("epsilon", "n"), [(1e-12, 16), (1e-12, 1_000_000), (1.0, 16), (300.0, 1_000_000)])
def test_memory_does_not_grow(epsilon, n):
    a, b = gaussian(sigma=2.0)
    tracemalloc.start()
    delta_bounds(a, b, epsilon, n, buckets=100_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 200 * 100_000  # bytes: some tens of arrays of as many buckets


def test_wrap_around_hides_no_edge_mass():
    """A loss far beyond the window, rare but decisive: it must be counted in full, wherever it wraps to."""
    a = np.array([1 - 1e-6 - 2e-6, 1e-6, 2e-6])
    b = np.array([1 - 1e-6 - 2e-6, 2e-6, 1e-6 * 1e-12])
    b /= math.fsum(b)
    for n in (2, 16, 128, 1000):
        exact = -math.expm1(n * math.log1p(-2e-6))  # the third outcome all but identifies A
        for buckets in (64, 1000, 50_000):
            bounds = delta_bounds(a, b, 5.0, n, buckets=buckets)
            assert bounds.lower <= exact
            assert bounds.upper >= exact * (1 - 1e-4)
        assert bounds.lower >= exact * (1 - 1e-3)


def test_distinguishing_mass_counts_once():
    """Mass of A where B is 0 counts fully; mass of B where A is 0 not at all."""
    for d in (1e-300, 1e-17, 1e-3, 0.5, 1.0):
        a, b = np.array([1 - d, d, 0.0]), np.array([1 - d, 0.0, d])
        for n in (1, 2, 128, 1_000_000):
            exact = -math.expm1(n * math.log1p(-d)) if d < 1 else 1.0
            bounds = delta_bounds(a, b, 3.0, n, buckets=2000)
            assert bounds.lower == pytest.approx(exact, rel=1e-9)
            # The rest is equal under both: nothing else counts at epsilon = 3.
            assert bounds.upper == pytest.approx(exact, rel=1e-9)
            assert bounds.distinguishing == pytest.approx(exact, rel=1e-9)


def test_tiny_subsampling_rate():
    grid = Grid(40.0, 800)
    a, b = subsampled_pair(truncated_gaussian(grid, 2.0), grid, 1e-6)
    for n in (1, 100, 1_000_000):
        one, other = delta_bounds(a, b, 0.01, n), delta_bounds(b, a, 0.01, n)
        assert 0 <= one.lower <= one.upper < 1e-3 and 0 <= other.lower <= other.upper < 1e-3


def test_equal_distributions_are_private():
    p = truncated_laplace(Grid(5.0, 100), 1.0)
    for n in (1, 2, 100):
        bounds = delta_bounds(p, p, 0.0, n)
        assert bounds.lower == 0.0 and bounds.upper < 1e-9
        assert delta_bounds(p, p, 1e-6, n).upper == 0.0
        assert epsilon_bounds(p, p, 1e-6, n).upper == 0.0


def test_disjoint_distributions_are_not():
    a, b = np.array([0.25, 0.75, 0.0]), np.array([0.0, 0.0, 1.0])
    bounds = delta_bounds(a, b, 2.0, 3)
    assert bounds.lower == pytest.approx(1.0, rel=1e-12) and bounds.upper == 1.0
    assert epsilon_bounds(a, b, 0.5).lower == math.inf


def test_shapes_of_the_results():
    a, b = gaussian()
    assert isinstance(delta_bounds(a, b, 0.3).upper, float)
    grid = delta_bounds(a, b, np.array([[0.0, 0.3], [0.6, 0.9]]), 2, buckets=2000)
    assert grid.upper.shape == grid.lower.shape == (2, 2)
    assert delta_bounds(a, b, np.array([]), 2).upper.shape == (0,)
    assert delta_bounds(list(a), list(b), 0.3).upper == delta_bounds(a, b, 0.3).upper
    assert epsilon_bounds(a, b, np.array([[1e-3], [1e-4]]), 2, buckets=2000).lower.shape == (2, 1)


def test_many_epsilons_at_once_agree_with_one():
    a, b = gaussian(sigma=3.0, half_width=60.0, cells=1200)
    for n, kind in ((1, "adp"), (1, "pdp"), (30, "adp")):
        epsilons = np.linspace(0.0, 4.0, 300)
        curve = delta_bounds(a, b, epsilons, n, kind)
        for i in range(0, 300, 60):
            alone = delta_bounds(a, b, epsilons[i], n, kind)
            np.testing.assert_allclose([curve.lower[i], curve.upper[i]], [alone.lower, alone.upper], rtol=2e-3)


def test_transform_lengths():
    for buckets in (16, 17, 100, 250_000, 262_144):
        length = transform_length(buckets)
        assert 0.75 * buckets <= length <= buckets and length % 2 == 0
        rest = length
        for factor in (2, 3, 5):
            while rest % factor == 0:
                rest //= factor
        assert rest == 1


def test_sums_are_exact():
    """As good as the exactly rounded sum, at any length."""
    random = np.random.default_rng(0)
    for size in (1, 2, 3, 7, 1000, 60001):
        masses = np.exp(-50 * random.random(size))
        masses /= masses.sum()
        for summands in (masses, np.sort(masses), np.sort(masses)[::-1]):
            high, low = _compensated_sum(np, summands)
            assert math.fsum((high, low)) == math.fsum(masses)
            # The rest itself is good, not only the sum rounded to a float.
            assert abs(Fraction(high) + Fraction(low) - sum(map(Fraction, masses.tolist()))) <= Fraction(1, 10**28)


GOOD = np.array([0.5, 0.5])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.array([0.5, 0.6]), GOOD, 0.3), "a: sum 1.1 is not allowed"),
        ((GOOD, np.array([0.5, 0.5 + 3e-9]), 0.3), "b: sum 1.00000000"),
        ((np.array([1.5, -0.5]), GOOD, 0.3), "a: mass -0.5 at index 1 is not allowed"),
        ((GOOD, np.array([0.5, math.nan]), 0.3), "b: mass nan at index 1 is not allowed"),
        ((GOOD, np.array([math.inf, 0.5]), 0.3), "b: mass inf at index 0 is not allowed"),
        ((GOOD, np.array([0.5, 0.25, 0.25]), 0.3), "b: length 3 is not allowed; it must be that of a, 2"),
        ((np.array([1.5e308, 1.5e308]), GOOD, 0.3), "a: sum nan is not allowed"),
        ((np.array([]), np.array([]), 0.3), "a: sum 0.0 is not allowed"),
        ((GOOD.reshape(1, 2), GOOD, 0.3), r"a: shape \(1, 2\) is not allowed"),
        ((GOOD, GOOD, -0.1), "epsilon: -0.1 is not allowed"),
        ((GOOD, GOOD, math.nan), "epsilon: nan is not allowed"),
        ((GOOD, GOOD, 0.3, 0), "compositions: 0 is not allowed"),
        ((GOOD, GOOD, 0.3, 1.5), "compositions: 1.5 is not allowed"),
        ((GOOD, GOOD, 0.3, True), "compositions: True is not allowed"),
        ((GOOD, GOOD, 0.3, 10**6 + 1), "compositions: 1000001 is not allowed"),
        ((GOOD, GOOD, 0.3, 1, "rdp"), "kind: 'rdp' is not allowed; choose one of adp, pdp"),
        ((GOOD, GOOD, 0.3, 1, "adp", 3), "buckets: 3 is not allowed"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message) as error:
        delta_bounds(*arguments)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("delta", [-1e-9, 1.1, math.nan])
def test_bad_delta(delta):
    with pytest.raises(ValueError, match=r"delta: .* is not allowed"):
        epsilon_bounds(GOOD, GOOD, delta)


@pytest.mark.parametrize(
    ("losses", "masses", "infinite", "message"),
    [
        ([0.1, math.inf], [0.5, 0.5], 0.0, "losses: all must be finite"),
        ([0.1, 0.2], [0.5, 0.5], -0.1, "infinite: -0.1 is not allowed"),
        ([0.1, 0.2], [0.5, 0.5], 0.1, "masses and infinite: sum 1.1 is not allowed"),
        ([0.1], [0.5, 0.5], 0.0, "masses: length 2 is not allowed"),
        ([0.1, -3.0], [0.5, 0.5], 0.0, "losses: they give B a mass of 10.4"),
    ],
)
def test_bad_losses(losses, masses, infinite, message):
    with pytest.raises(ValueError, match=message):
        delta_bounds_of_losses(losses, masses, infinite, 0.3)


def test_sums_of_one_and_1e_12_are_taken():
    a, b = np.array([0.5, 0.5]) * (1 + 1e-12), np.array([0.4, 0.6]) * (1 - 1e-12)
    exact = [0.1, 0.1 + 1e-11]
    bounds = delta_bounds(a, b, 0.0)
    assert bounds.lower <= exact[0] and bounds.upper >= 0.5 * (1 + 1e-12) - 0.4 * (1 - 1e-12)
    assert bounds.upper - bounds.lower <= 1e-10


@pytest.mark.parametrize("span", [3e3, 2e4, 1e6])
def test_many_epsilons_over_a_range_beyond_that_of_floats(span):
    """Losses thousands apart: discounting them all from one reference would overflow or vanish."""
    losses = np.array([1.0, span - 0.5, span])
    masses = np.array([0.5, 0.25, 0.25])
    epsilons = np.concatenate([np.linspace(0, 2, 20), np.linspace(span - 2, span + 1, 20)])
    found = delta_bounds_of_losses(losses, masses, 0.0, epsilons)
    exact = [math.fsum(m * -math.expm1(min(e - x, 0.0)) for x, m in zip(losses, masses, strict=True)) for e in epsilons]
    assert np.all(found.lower <= np.multiply(exact, 1 + 1e-14)) and np.all(found.upper >= np.multiply(exact, 1 - 1e-14))
    assert np.all(found.upper - found.lower <= 1e-12 + 1e-15 * span)  # epsilon itself is known to so much


def test_bounds_from_one_fold_far_beyond_its_losses_are_numbers():
    a, b = np.array([0.4, 0.6]), np.array([0.6, 0.4])
    found = delta_bounds(a, b, np.linspace(0, 400_000, 50), 1_000_000, buckets=1000)
    assert np.all(found.lower <= found.upper) and np.all(found.upper <= 1)


def test_losses_that_overflow_their_exponential_one_by_one():
    """b/a beyond the range of floats beside losses that are cut off: no warning, and still the truth."""
    a = np.array([1e-310, 0.5, 0.5 - 1e-12, 1e-12])
    b = np.array([0.5, 0.25, 0.25, 1e-300])
    found = delta_bounds(a / a.sum(), b, 0.3, 4)
    exact = brute_force(a, b, 0.3, 4)
    assert found.lower <= exact * (1 + 1e-12) and found.upper >= exact * (1 - 1e-12)


def brute_force(a, b, epsilon, n):
    """The hockey-stick divergence of A^n and B^n by all n-tuples, as exact rationals but for e^eps."""
    factor = Fraction(math.exp(epsilon))
    pairs = [(Fraction(1), Fraction(1))]
    for _ in range(n):
        pairs = [
            (x * Fraction(p), y * Fraction(q)) for x, y in pairs for p, q in zip(a.tolist(), b.tolist(), strict=True)
        ]
    return float(sum(max(Fraction(0), x - factor * y) for x, y in pairs))


def test_a_lattice_step_beyond_the_range_of_exp_is_no_overflow():
    """Losses near 690 on a few buckets make steps whose exponential is no float."""
    a = np.array([0.5018930284890736, 0.49810697151091804, 7.2090103048946435e-301, 8.47892069074869e-15])
    b = np.array([1.0673880403178426e-300, 0.5795943828629927, 0.42040561751537237, 0.0])
    coarse, fine = (delta_bounds(a, b, 690.02, 3, "adp", buckets) for buckets in (16, 250_000))
    assert coarse.lower <= fine.upper and fine.lower <= coarse.upper <= 1


@pytest.mark.parametrize("n", [1, 3])
def test_masses_of_a_few_least_floats(n):
    """Products with them are rounded to whole multiples of the least float: neither bound may rest on that."""
    least, count = 5e-324, 2000
    a, b = np.append(1.0, np.full(count, 2 * least)), np.append(1.0, np.full(count, least))
    for epsilon in (0.3, 0.5):
        one = count * (2 - Fraction(math.exp(epsilon))) * Fraction(least)
        bounds = delta_bounds(a, b, epsilon, n)
        assert Fraction(bounds.lower) <= n * one and one <= Fraction(bounds.upper)
        many = delta_bounds(a, b, np.linspace(epsilon, 2, 30), n)
        assert Fraction(many.lower[0]) <= n * one and one <= Fraction(many.upper[0])


@pytest.mark.parametrize("buckets", [15, 0, 10_000_001, 99_999_999_999_999, 20.0, True])
def test_buckets_out_of_range_are_refused(buckets):
    with pytest.raises(
        ValueError, match=r"^buckets: .* is not allowed; it must be a whole number from 16 to 10000000$"
    ):
        delta_bounds(np.array([1.0]), np.array([1.0]), 0.0, 2, buckets=buckets)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("a", ([1j, 1], [0.5, 0.5], 1.0)),
        ("a", (["x", "y"], [0.5, 0.5], 1.0)),
        ("b", ([0.5, 0.5], [[0.5], [0.5, 0.5]], 1.0)),
        ("epsilon", ([0.5, 0.5], [0.5, 0.5], 1j)),
        ("epsilon", ([0.5, 0.5], [0.5, 0.5], "a")),
    ],
)
def test_what_is_no_real_number_is_refused(name, arguments):
    with pytest.raises(ValueError, match=f"^{name}: .*real numbers"):
        delta_bounds(*arguments)


def test_a_curve_that_falls_off_a_cliff_is_as_tight_before_it_as_one_epsilon_alone():
    """Nearly all losses are small and a share of 1e-20 is large: one tilt cannot serve both sides of the cliff."""
    losses = np.concatenate([np.linspace(-0.045, 0.075, 400), np.linspace(1.0, 5.5, 40)])
    a = np.concatenate([np.full(400, 1 / 400), np.full(40, 2.5e-22)])
    b = a * np.exp(-losses)
    b[:400] *= (1 - b[400:].sum()) / b[:400].sum()
    epsilons = np.linspace(0.1, 2.0, 100)
    curve = delta_bounds(a, b, epsilons, 4)
    alone = [delta_bounds(a, b, epsilon, 4) for epsilon in epsilons[:4]]
    assert alone[0].lower > 1e-3
    assert np.all((curve.upper - curve.lower)[:8] <= 1e-2 * curve.upper[:8])
    for i, one in enumerate(alone):
        assert curve.lower[i] <= one.upper
        assert one.lower <= curve.upper[i]
