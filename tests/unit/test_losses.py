"""Privacy losses: values against exact ones, gradients against differences, exact rationals and closed forms."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from optnoise import losses
from optnoise.accounting import delta_bounds
from optnoise.backend import to_host
from optnoise.baselines import truncated_gaussian
from optnoise.grid import Grid
from optnoise.losses import LOSSES, PAYOFFS, adp, choose_buckets, fast_length, ma, pdp
from optnoise.pairs import ORDERS, in_order, worst_case_pair

COMPOSITIONS = (1, 2, 3, 7, 128)
EPSILON = 0.3


def random_pair(seed: int, rows: int = 2, outcomes: int = 24, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Distributions with a zero in either, and losses of size ``spread``."""
    rng = np.random.default_rng(seed)
    a = rng.dirichlet(np.ones(outcomes), rows)
    b = a * np.exp(spread * rng.standard_normal(a.shape))
    a[0, :2] = 0.0
    b[0, 1:3] = 0.0
    return a / a.sum(axis=1, keepdims=True), b / b.sum(axis=1, keepdims=True)


def thin_edges() -> tuple[np.ndarray, np.ndarray]:
    """A Gaussian on a grid where the outermost masses are next to nothing, and exact zeros beyond."""
    grid = Grid(20.0, 80)
    p = truncated_gaussian(grid, 0.7)
    p[:3] = p[-3:] = 0.0
    return worst_case_pair((p / p.sum())[None], grid, pair="additive")


def exact_delta(a: np.ndarray, b: np.ndarray, epsilon: float, n: int) -> float:
    """sum max(0, A^n - e^eps B^n) over all n-tuples of outcomes."""
    total = 0.0
    for chosen in itertools.product(range(len(a)), repeat=n):
        total += max(0.0, math.prod(a[i] for i in chosen) - math.exp(epsilon) * math.prod(b[i] for i in chosen))
    return total


def settings(kind: str, a: np.ndarray, b: np.ndarray, n: int, smoothing: float = 0.0) -> dict:
    """Arguments with the buckets held, as the gradient holds them."""
    buckets = choose_buckets(a, b, epsilon=EPSILON, compositions=n, buckets=101, kind=kind, smoothing=smoothing)
    return {"epsilon": EPSILON, "compositions": n, "buckets": buckets}


def directional(loss, a, b, da, db, arguments, step: float) -> np.ndarray:
    up = loss(a + step * da, b + step * db, **arguments)[0]
    down = loss(a - step * da, b - step * db, **arguments)[0]
    return (up - down) / (2 * step)


@pytest.mark.parametrize("kind", list(LOSSES))
@pytest.mark.parametrize("n", COMPOSITIONS)
@pytest.mark.parametrize("spread", [0.02, 0.3, 3.0])
def test_gradient_is_that_of_the_value(kind, n, spread):
    loss = LOSSES[kind]
    for seed in range(3):
        a, b = random_pair(seed, spread=spread)
        arguments = settings(kind if kind in PAYOFFS else "adp", a, b, n)
        value, da, db = loss(a, b, **arguments)
        rng = np.random.default_rng(100 + seed)
        for _ in range(4):
            # Relative moves: nothing changes its bucket or its sign for the sake of the difference.
            move_a, move_b = a * rng.standard_normal(a.shape), b * rng.standard_normal(b.shape)
            expected = directional(loss, a, b, move_a, move_b, arguments, 1e-6)
            found = (da * move_a).sum(axis=1) + (db * move_b).sum(axis=1)
            scale = np.abs(da * move_a).sum(axis=1) + np.abs(db * move_b).sum(axis=1) + np.abs(value)
            assert np.all(np.abs(found - expected) <= 2e-6 * scale + 1e-9)  # a transform's rounding, over the step


@pytest.mark.parametrize("kind", list(LOSSES))
@pytest.mark.parametrize("n", COMPOSITIONS)
def test_gradient_at_thin_edges(kind, n):
    a, b = thin_edges()
    arguments = settings(kind if kind in PAYOFFS else "adp", a, b, n)
    value, da, db = LOSSES[kind](a, b, **arguments)
    assert np.isfinite(value).all() and np.isfinite(da).all() and np.isfinite(db).all()
    rng = np.random.default_rng(n)
    move_a, move_b = a * rng.standard_normal(a.shape), b * rng.standard_normal(b.shape)
    expected = directional(LOSSES[kind], a, b, move_a, move_b, arguments, 1e-6)
    found = (da * move_a).sum(axis=1) + (db * move_b).sum(axis=1)
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_one_sided_gradient_where_mass_enters_beside_the_support(n):
    """A mass that appears where the other distribution has none is distinguishing: slope n (1 - b_inf)^(n-1)."""
    a, b = random_pair(3, rows=1)
    a[0, 5] = b[0, 5] = 0.0
    arguments = settings("adp", a, b, n)
    for kind in ("adp", "ma"):
        value, da, _ = LOSSES[kind](a, b, **arguments)
        moved = a.copy()
        moved[0, 5] = 1e-7
        slope = (LOSSES[kind](moved, b, **arguments)[0] - value) / 1e-7
        assert da[0, 5] == pytest.approx(slope[0], rel=1e-5)


def test_split_between_buckets_agrees_with_exact_rationals():
    """Two rounds, buckets of width log 2: every quantity is rational, value and gradient alike."""
    a = np.array([[3 / 8, 1 / 4, 1 / 4, 1 / 8, 0.0]])
    b = np.array([[1 / 4, 1 / 8, 3 / 8, 0.0, 1 / 4]])
    # Losses log 3/2 (between 0 and log 2), log 2 (on a bucket), log 2/3 (between -log 2 and 0), infinity, -infinity.
    value, da, db = adp(a, b, epsilon=0.0, compositions=2, buckets=5, width=math.log(2))
    half = Fraction(1, 2)
    # upper = (a - e^l b) / (1 - 1/2) on the next bucket, the rest on the one below.
    beta = dict.fromkeys(range(-2, 3), Fraction(0))
    beta[1] += 2 * (Fraction(3, 8) - Fraction(1, 4))
    beta[0] += Fraction(3, 8) - 2 * (Fraction(3, 8) - Fraction(1, 4))
    beta[1] += Fraction(1, 4)
    beta[0] += 2 * (Fraction(1, 4) - half * Fraction(3, 8))
    beta[-1] += Fraction(1, 4) - 2 * (Fraction(1, 4) - half * Fraction(3, 8))
    infinite = Fraction(1, 8)
    payoff = lambda j: max(Fraction(0), 1 - Fraction(1, 2) ** j if j >= 0 else Fraction(0))  # noqa: E731
    exact = sum(beta[i] * beta[j] * payoff(i + j) for i in beta for j in beta) + 1 - (1 - infinite) ** 2
    assert value[0] == pytest.approx(float(exact), rel=1e-14)
    slope = {j: 2 * sum(beta[i] * payoff(i + j) for i in beta) for j in beta}
    expected_a0 = 2 * (slope[1] - slope[0]) + slope[0]
    expected_b0 = -2 * (slope[1] - slope[0])
    assert da[0, 0] == pytest.approx(float(expected_a0), rel=1e-13)
    assert db[0, 0] == pytest.approx(float(expected_b0), rel=1e-13)
    assert da[0, 3] == pytest.approx(float(2 * (1 - infinite)), rel=1e-14)
    assert da[0, 4] == pytest.approx(float(slope[-2]), abs=1e-14) and db[0, 4] == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_one_round_is_exact_and_more_are_bounded_from_above(seed):
    a, b = random_pair(seed, rows=1, outcomes=7, spread=0.6)
    for n in (1, 2, 3):
        exact = exact_delta(a[0], b[0], EPSILON, n)
        for buckets in (11, 101, 1001):
            value = adp(a, b, epsilon=EPSILON, compositions=n, buckets=buckets)[0][0]
            if n == 1:
                assert value == pytest.approx(exact, rel=1e-13)
            assert value >= exact * (1 - 1e-12)
        assert value <= exact * (1 + 1e-4)
        assert ma(a, b, epsilon=EPSILON, compositions=n)[0][0] >= exact * (1 - 1e-12)


@pytest.mark.parametrize("n", [2, 4, 128])
def test_circular_convolution_is_a_bound_close_to_the_linear_one(n):
    grid = Grid(100.0, 2000)
    for sigma in (1.0, 5.0, 20.0, 60.0):
        a, b = worst_case_pair(truncated_gaussian(grid, sigma)[None], grid, pair="additive")
        plan = choose_buckets(a, b, epsilon=EPSILON, compositions=n, buckets=201)
        linear = adp(a, b, epsilon=EPSILON, compositions=n, buckets=201, width=plan.width)[0]
        circular = adp(a, b, epsilon=EPSILON, compositions=n, buckets=plan)[0]
        assert circular >= linear - 1e-13
        assert circular <= linear * (1 + 1e-6) + 1e-12
    assert (plan.tilt is not None) == (n == 128)


def test_buckets_made_for_another_noise_still_bound():
    """Losses that leave the circle of a convolution are counted, with a slope; they do not vanish round it."""
    grid = Grid(100.0, 2000)
    pairs = {s: worst_case_pair(truncated_gaussian(grid, s)[None], grid, pair="additive") for s in (1.0, 2.0, 60.0)}
    plan = choose_buckets(*pairs[60.0], epsilon=EPSILON, compositions=128, buckets=201)
    for sigma in (1.0, 2.0):
        a, b = pairs[sigma]
        truth = adp(a, b, epsilon=EPSILON, compositions=128, buckets=201)[0]
        value, da, db = adp(a, b, epsilon=EPSILON, compositions=128, buckets=plan)
        assert value >= truth - 1e-12
        assert np.isfinite(da).all() and np.isfinite(db).all()


def test_losses_that_leave_the_circle_above_are_bounded():
    """Noise narrower than the buckets were made for: its sums pass the circle's end, though few losses the top."""
    grid = Grid(100.0, 2000)
    pairs = {s: worst_case_pair(truncated_gaussian(grid, s)[None], grid, pair="additive") for s in (4.0, 6.0, 30.0)}
    plan = choose_buckets(*pairs[30.0], epsilon=EPSILON, compositions=128, buckets=201)
    for sigma in (4.0, 6.0):
        a, b = pairs[sigma]
        exact = delta_bounds(a[0], b[0], EPSILON, 128)
        assert 0.5 < exact.lower < 0.9
        value, da, _ = adp(a, b, epsilon=EPSILON, compositions=128, buckets=plan)
        assert value >= exact.lower
        move = a * np.random.default_rng(0).standard_normal(a.shape)
        arguments = {"epsilon": EPSILON, "compositions": 128, "buckets": plan}
        expected = directional(adp, a, b, move, 0 * b, arguments, 1e-8)  # few of many outcomes pass a bucket's end
        assert (da * move).sum(axis=1) == pytest.approx(expected, rel=1e-4)


def test_finer_buckets_tighten_the_bound():
    a, b = random_pair(1, spread=0.2)
    values = [adp(a, b, epsilon=0.1, compositions=8, buckets=k)[0] for k in (21, 101, 1001)]
    assert np.all(values[0] >= values[1]) and np.all(values[1] >= values[2])


def test_losses_beyond_the_buckets_are_split_with_infinity_or_raised():
    a = np.array([[0.9, 0.1]])
    b = np.array([[0.1, 0.9]])
    for width in (1e-3, 1e-2):
        value, da, _ = adp(a, b, epsilon=0.0, compositions=2, buckets=11, width=width)
        assert value[0] >= exact_delta(a[0], b[0], 0.0, 2)
        up = adp(a * [[1 + 1e-6, 1]], b, epsilon=0.0, compositions=2, buckets=11, width=width)[0]
        down = adp(a * [[1 - 1e-6, 1]], b, epsilon=0.0, compositions=2, buckets=11, width=width)[0]
        assert da[0, 0] == pytest.approx((up - down)[0] / (2e-6 * 0.9), rel=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_pdp_counts_losses_above_epsilon(n):
    """Losses that lie on buckets are counted exactly; one at epsilon itself does not count."""
    t = EPSILON / 4
    places = np.array([-8, 0, 4, 8])  # 4 is epsilon
    a = np.array([[0.1, 0.4, 0.3, 0.2]])
    b = a * np.exp(-places * t)
    exact = sum(
        math.prod(a[0, list(chosen)])
        for chosen in itertools.product(range(4), repeat=n)
        if places[list(chosen)].sum() > 4
    )
    value = pdp(a, b, epsilon=EPSILON, compositions=n, buckets=33, width=t)[0]
    assert value[0] == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("kind", ["adp", "pdp"])
@pytest.mark.parametrize("n", [1, 2, 128])
def test_smoothed_payoff(kind, n):
    a, b = random_pair(5, spread=0.3)
    sharp = LOSSES[kind](a, b, **settings(kind, a, b, n))[0]
    for smoothing in (0.1, 0.01, 1e-4):
        arguments = settings(kind, a, b, n, smoothing)
        value, da, _ = LOSSES[kind](a, b, **arguments)
        move = a * np.random.default_rng(0).standard_normal(a.shape)
        expected = directional(LOSSES[kind], a, b, move, 0 * b, arguments, 1e-6)
        assert (da * move).sum(axis=1) == pytest.approx(expected, rel=1e-5, abs=1e-8)
        if kind == "adp":
            assert np.all(value >= sharp - 1e-4) and np.all(value <= sharp + smoothing)


def _exponent(a, b, order, n):
    shared = (a > 0) & (b > 0)
    moment = mpmath.fsum(
        x * (x / y) ** order for x, y in zip(map(mpmath.mpf, a[shared]), map(mpmath.mpf, b[shared]), strict=True)
    )
    return n * mpmath.log(moment) - order * mpmath.mpf(EPSILON)


@pytest.mark.parametrize("n", [1, 2, 16])
def test_moments_accountant_minimises_over_the_order(n):
    for spread, seed in ((0.05, 0), (0.3, 1), (0.05, 2)):
        a, b = random_pair(seed, rows=1, spread=spread)
        value, da, db = ma(a, b, epsilon=EPSILON, compositions=n)
        with mpmath.workdps(30):
            low, high = mpmath.mpf(losses.LEAST_ORDER), mpmath.mpf(1e3)
            for _ in range(70):  # a ternary search: convex
                third = (high - low) / 3
                if _exponent(a[0], b[0], low + third, n) < _exponent(a[0], b[0], high - third, n):
                    high -= third
                else:
                    low += third
            best = _exponent(a[0], b[0], low, n)
            moments = mpmath.exp(best) if best <= 0 else 1 + best
            expected = moments + 1 - (1 - mpmath.fsum(a[0][b[0] == 0])) ** n
        assert value[0] == pytest.approx(float(expected), rel=1e-11)
        assert np.isfinite(da).all() and np.isfinite(db).all()


def test_moments_gradient_by_complex_step():
    """At a fixed order the exponent is analytic: a complex step gives its derivative to rounding."""
    a, b = random_pair(0, rows=1, spread=0.05)
    a, b = np.where(b == 0, 0.0, a), np.where(a == 0, 0.0, b)  # no distinguishing events
    n, shared = 4, a[0] > 0
    x, y = a[0][shared], b[0][shared]
    slope = lambda order: n * np.sum(x * (x / y) ** order * np.log(x / y)) / np.sum(x * (x / y) ** order) - EPSILON  # noqa: E731
    low, high = losses.LEAST_ORDER, 1e4
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    order = low
    assert order > 1  # not at the bound
    da, db = (g[0][shared] for g in ma(a, b, epsilon=EPSILON, compositions=n)[1:])
    for i in range(len(x)):
        for side, found in (("a", da), ("b", db)):
            u, v = x.astype(complex), y.astype(complex)
            (u if side == "a" else v)[i] += 1e-30j
            value = np.exp(n * np.log(np.sum(u * (u / v) ** order)) - order * EPSILON)
            assert found[i] == pytest.approx(value.imag / 1e-30, rel=1e-8)


def test_nothing_overflows_where_a_noise_protects_nothing():
    grid = Grid(15.0, 600)
    for p in (truncated_gaussian(grid, 0.05), truncated_gaussian(grid, 1.0), np.eye(600)[300]):
        a, b = worst_case_pair(p[None], grid, pair="additive")
        for kind, loss in LOSSES.items():
            value, da, db = loss(a, b, epsilon=EPSILON, compositions=128)
            assert np.isfinite(value).all() and np.isfinite(da).all() and np.isfinite(db).all(), kind
            assert value >= 0.9999


def test_rows_do_not_mix():
    grid = Grid(40.0, 400)
    noises = np.stack([truncated_gaussian(grid, sigma) for sigma in (2.0, 5.0, 9.0)])
    a, b = worst_case_pair(noises, grid, pair="subsampled", q=0.2)
    for kind, loss in LOSSES.items():
        for order in ORDERS:
            first, second = in_order(a, b, order)
            together = loss(first, second, epsilon=EPSILON, compositions=5)
            for row in range(3):
                alone = loss(first[row : row + 1], second[row : row + 1], epsilon=EPSILON, compositions=5)
                for whole, part in zip(together, alone, strict=True):
                    assert np.array_equal(whole[row], part[0]), (kind, order)


def test_additive_orders_agree():
    grid = Grid(40.0, 400)
    a, b = worst_case_pair(truncated_gaussian(grid, 4.0)[None], grid, pair="additive")
    for loss in LOSSES.values():
        forward, backward = (loss(*in_order(a, b, order), epsilon=EPSILON, compositions=3)[0] for order in ORDERS)
        assert forward == pytest.approx(backward, rel=1e-12)


@pytest.mark.parametrize("kind", list(LOSSES))
def test_array_modules_agree(xp, kind):
    """Compiled kernels against array operations, on a device or its stand-in, without hidden copies."""
    for a, b in (random_pair(0), random_pair(1, spread=4.0), thin_edges()):
        for n in (1, 5, 128):
            expected = LOSSES[kind](a, b, epsilon=EPSILON, compositions=n, buckets=101)
            found = LOSSES[kind](xp.asarray(a), xp.asarray(b), epsilon=EPSILON, compositions=n, buckets=101)
            assert to_host(found[0]) == pytest.approx(expected[0], rel=1e-11, abs=1e-14)
            # On a bucket, at a kink, either slope is right.
            shared = {"epsilon": EPSILON, "compositions": n, "buckets": 101}
            width = choose_buckets(a, b, **shared).width
            theirs = to_host(choose_buckets(xp.asarray(a), xp.asarray(b), **shared).width)
            assert theirs == pytest.approx(width, rel=1e-12) or expected[0].max() > 0.999  # where all bound alike
            same = (np.abs(theirs / width - 1) < 1e-12)[:, None]
            with np.errstate(divide="ignore", invalid="ignore"):
                place = np.log(a / b) / width[:, None]
                inner = (np.abs(place - np.round(place)) > 1e-6) & (a > 0) & (b > 0) & same
            for mass, one, other in zip((a, b), expected[1:], found[1:], strict=True):
                # Where a far exceeds b, the rounding of d/db is magnified by a/b.
                difference = np.abs(to_host(other) - one) * np.minimum(1.0, b / np.maximum(a, 1e-300))
                assert difference[inner].max(initial=0.0) <= 1e-9 * np.abs(one[mass > 0]).max() + 1e-11


def test_split_walks_and_searches_alike():
    """The compiled walk against the array formula, on smooth masses and on noise that jumps everywhere."""
    from optnoise import bucketing

    rng = np.random.default_rng(4)
    smooth = worst_case_pair(truncated_gaussian(Grid(30.0, 600), 4.0)[None], Grid(30.0, 600), pair="additive")
    rough = (rng.uniform(size=(2, 300)) ** 8, rng.uniform(size=(2, 300)) ** 8)
    rough[0][0, :5] = rough[1][0, 3:8] = 0.0
    for a, b in (smooth, rough):
        plan = choose_buckets(a, b, epsilon=EPSILON, compositions=4, buckets=201)
        interval = np.empty(a.shape, dtype=np.int32)
        sums = np.zeros(plan.ends.shape), np.zeros(plan.ends.shape)
        bucketing.split(a, b, plan.ends, interval, *sums)
        expected = losses.intervals(np, a, b, plan)
        assert np.mean(interval != expected) < 0.02  # outcomes that lie on a bucket, by rounding
        assert np.abs(interval - expected).max() <= 1
        for mass, found in zip((a, b), sums, strict=True):
            assert found == pytest.approx(losses.sums_by(np, interval, mass, plan.ends.shape[1]), rel=1e-13, abs=1e-300)


def test_fast_length():
    for least in (1, 2, 7, 9, 100, 8001, 16000, 128001):
        length = fast_length(least)
        rest = length
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        assert rest == 1 and length >= least and length % 8 == 0
        assert length <= max(16, 1.2 * least)


def test_bad_buckets():
    a, b = random_pair(0)
    with pytest.raises(ValueError, match="buckets: 2 is not allowed"):
        adp(a, b, epsilon=EPSILON, compositions=1, buckets=2)
