"""The accountant against oracles that share no code with it, and its properties over random pairs."""

from __future__ import annotations

import csv
import itertools
import math
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr

from optnoise.accounting import delta_bounds, delta_bounds_of_losses, epsilon_bounds
from optnoise.baselines import truncated_gaussian, truncated_laplace
from optnoise.grid import Grid
from optnoise.pairs import additive_pair, subsampled_pair

DATA = Path(__file__).parents[1] / "data"
FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def width(bounds):
    return np.max((bounds.upper - bounds.lower) / np.maximum(bounds.upper, 1e-320))


# --- oracles -------------------------------------------------------------------------------------------------


def truth_rows():
    with open(DATA / "accountant_truth.csv") as file:
        return list(csv.DictReader(file))


def reference_pair(row):
    """The pair of a row, as the reference describes it (grid points, not cell centres)."""
    half_width, cells, sigma = float(row["half_width"]), int(row["cells"]), float(row["sigma"])
    x = np.linspace(-half_width, half_width, cells)
    p = np.exp(-(x**2) / (2 * sigma**2))
    p = (p + p[::-1]) / 2
    p /= math.fsum(p)
    shift = np.zeros(int(cells / (2 * half_width)))
    a, b = np.concatenate([p, shift]), np.concatenate([shift, p])
    if row["pair"] == "subsampled":
        b = (1 - float(row["q"])) * a + float(row["q"]) * b
    return (a, b) if row["order"] == "A/B" else (b, a)


@pytest.mark.parametrize("row", truth_rows(), ids=lambda r: "-".join(r[k] for k in list(r)[:9] if k != "grid"))
def test_reference_values(row):
    a, b = reference_pair(row)
    bounds = delta_bounds(a, b, float(row["epsilon"]), int(row["n"]))
    least, most = float(row["delta_at_least"]), float(row["delta_at_most"])
    # An exact value is printed to 16 digits, of a pair that is rebuilt here to 16 digits.
    tolerance = 1e-13 if row["kind"] == "exact" else 0.0
    assert bounds.lower <= most * (1 + tolerance)
    assert bounds.upper >= least * (1 - tolerance)
    if most == 0.0:
        assert bounds.upper == 0.0
    elif most >= 1e-12:
        assert width(bounds) <= 1e-3
    else:
        assert width(bounds) <= 1e-2


def exact_delta(a, b, epsilon, n, kind="adp"):
    """delta of the masses as they are, by enumeration in rational arithmetic (e^epsilon to 300 digits)."""
    with mpmath.workdps(300):
        power = mpmath.exp(mpmath.mpf(epsilon))
        ratio = Fraction(int(mpmath.floor(power * mpmath.mpf(10) ** 250)), 10**250)
    single = {}
    for x, y in zip(a, b, strict=True):
        key = Fraction(float(x)), Fraction(float(y))
        single[key] = single.get(key, 0) + 1
    tuples = {(Fraction(1), Fraction(1)): 1}
    for _ in range(n):
        longer = {}
        for (x, y), count in tuples.items():
            for (u, v), times in single.items():
                longer[x * u, y * v] = longer.get((x * u, y * v), 0) + count * times
        tuples = longer
    if kind == "pdp":
        return sum((count * x for (x, y), count in tuples.items() if x > ratio * y), Fraction(0))
    return sum((count * max(Fraction(0), x - ratio * y) for (x, y), count in tuples.items()), Fraction(0))


@st.composite
def small_pairs(draw, smallest=-60.0):
    """Two distributions on up to 5 outcomes: masses over many magnitudes, equal ones, zeros on either side."""
    size = draw(st.integers(2, 5))
    exponents = st.one_of(st.floats(smallest, 0.0), st.just(0.0))
    a = np.exp(draw(st.lists(exponents, min_size=size, max_size=size)))
    if draw(st.booleans()):
        b = a * np.exp(draw(st.lists(st.floats(-0.5, 0.5), min_size=size, max_size=size)))
    else:
        b = np.exp(draw(st.lists(exponents, min_size=size, max_size=size)))
    for masses in (a, b):
        zero = draw(st.integers(-size, size - 1))
        if zero >= 0:
            masses[zero] = 0.0
    return a / math.fsum(a), b / math.fsum(b)


@FEW
@given(
    pair=small_pairs(),
    epsilon=st.one_of(st.just(0.0), st.floats(0.0, 3.0), st.floats(0.0, 200.0)),
    n=st.integers(1, 4),
    kind=st.sampled_from(["adp", "adp", "pdp"]),
    buckets=st.sampled_from([50, 1000, 20000]),
)
def test_exact_rational_arithmetic(pair, epsilon, n, kind, buckets):
    a, b = pair
    exact = exact_delta(a, b, epsilon, n, kind)
    bounds = delta_bounds(a, b, epsilon, n, kind, buckets)
    assert 0 <= bounds.lower <= bounds.upper <= 1
    assert Fraction(bounds.lower) <= exact
    # Masses that sum to more than 1 can have a delta above it; the bound is cut at 1.
    assert Fraction(bounds.upper) >= min(exact, 1)


@FEW
@given(pair=small_pairs(), epsilon=st.floats(0.0, 3.0), n=st.integers(1, 4), off=st.floats(-9e-10, 9e-10))
def test_sums_off_by_little(pair, epsilon, n, off):
    """Both readings of masses that do not quite sum to 1 are inside: as they are, and divided by their sums."""
    a, b = pair[0] * (1 + off), pair[1] * (1 - off / 2)
    bounds = delta_bounds(a, b, epsilon, n, buckets=2000)
    literal = exact_delta(a, b, epsilon, n)
    assert Fraction(bounds.lower) <= literal and min(literal, 1) <= Fraction(bounds.upper)
    sum_a, sum_b = sum(map(Fraction, a.tolist())), sum(map(Fraction, b.tolist()))
    with mpmath.workdps(60):
        shifted = mpmath.mpf(epsilon) + n * mpmath.log(
            mpmath.mpf(sum_a.numerator) / sum_a.denominator / (mpmath.mpf(sum_b.numerator) / sum_b.denominator)
        )
        normalised = exact_delta(a, b, shifted, n) / sum_a**n
    assert Fraction(bounds.lower) <= normalised <= Fraction(bounds.upper)


def gaussian_delta(epsilon, mu):
    """delta of N(0, 1) against N(mu, 1) (Balle and Wang 2018, theorem 8)."""
    upper = mpmath.ncdf(mu / 2 - mpmath.mpf(epsilon) / mu)
    return float(upper - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - mpmath.mpf(epsilon) / mu))


@pytest.mark.parametrize("n", [1, 2, 16, 128, 1000])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0])
def test_gaussian_closed_form(n, epsilon):
    """Cell masses are post-processing, so delta may not exceed the closed form; fine cells come close to it."""
    sigma = 8.0 * math.sqrt(n) if n < 100 else 2.0 * math.sqrt(n)
    grid = Grid(40.0 * math.ceil(sigma), 40 * math.ceil(sigma) * 40)
    a, b = additive_pair(truncated_gaussian(grid, sigma), grid)
    with mpmath.workdps(60):
        exact = gaussian_delta(epsilon, mpmath.sqrt(n) / sigma)
    bounds = delta_bounds(a, b, epsilon, n)
    assert bounds.lower <= exact * (1 + 1e-9)
    assert bounds.upper >= exact * (1 - 2e-3)
    assert width(bounds) <= (1e-3 if exact >= 1e-12 else 1e-2)


def randomised_response_delta(p, epsilon, n):
    """A = Bernoulli(p), B = Bernoulli(1 - p), n times: k truths have loss (2k - n) log(p/(1 - p))."""
    with mpmath.workdps(60):
        p = mpmath.mpf(p)
        q = 1 - p
        loss, total = mpmath.log(p / q), mpmath.mpf(0)
        first = math.floor((epsilon / loss + n) / 2)
        coefficient = mpmath.binomial(n, first)
        for k in range(first, n + 1):
            total += coefficient * max(0, p**k * q ** (n - k) - mpmath.exp(epsilon) * q**k * p ** (n - k))
            coefficient = coefficient * (n - k) / (k + 1)
        return total


@pytest.mark.parametrize(
    ("n", "p"), [(1, 0.75), (2, 0.75), (16, 0.75), (128, 0.53125), (1000, 0.5625), (2000, 0.5078125)]
)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
def test_randomised_response(n, p, epsilon):
    bounds = delta_bounds(np.array([p, 1 - p]), np.array([1 - p, p]), epsilon, n)
    exact = randomised_response_delta(p, epsilon, n)
    assert bounds.lower <= exact <= bounds.upper
    if exact > 1e-40:
        assert width(bounds) <= 1e-2


def test_a_million_compositions():
    """Against a Gaussian limit that is good to a few per cent, and itself tight to as much."""
    mu = 1.0
    a = np.exp(np.array([0.5, -0.5]) * mu / 1000) / (2 * math.cosh(0.5 * mu / 1000))
    bounds = delta_bounds(a, a[::-1].copy(), 1.0, 1_000_000)
    exact = gaussian_delta(1.0, mu)
    assert bounds.lower * 0.999 <= exact <= bounds.upper * 1.001
    assert width(bounds) <= 0.03


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.3, 0.45])
def test_laplace_closed_form(epsilon):
    scale = 2.0
    grid = Grid(120.0, 120 * 2 * 100)
    a, b = additive_pair(truncated_laplace(grid, scale), grid)
    exact = -math.expm1((epsilon - 1 / scale) / 2)
    bounds = delta_bounds(a, b, epsilon)
    assert bounds.lower <= exact * (1 + 1e-9)
    assert bounds.upper >= exact * (1 - 1e-4)
    assert width(bounds) <= 1e-9
    assert delta_bounds(a, b, 1 / scale).upper < 1e-12


@pytest.mark.parametrize("n", [2, 3, 8, 32])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
def test_loss_linear_in_the_outcome(n, epsilon):
    """p_i ~ e^(-c i^2/2), shifted by one cell, has losses c (1/2 - i): n-fold by direct sums of positive terms."""
    c, half = 0.04, 60
    i = np.arange(-half, half + 1)
    p = np.exp(-c * i**2 / 2)
    p /= math.fsum(p)
    a, b = np.append(p, 0.0), np.insert(p, 0, 0.0)
    masses = composed = p[1:][::-1]  # the first outcome is distinguishing; losses rise
    losses = (c * (0.5 - i[1:]))[::-1]
    for _ in range(n - 1):
        composed = np.convolve(composed, masses)
    sums = n * losses[0] + c * np.arange(composed.size)
    finite = math.fsum(composed * np.maximum(0.0, -np.expm1(np.minimum(epsilon - sums, 0.0))))
    exact = finite - math.expm1(n * math.log1p(-p[0]))
    bounds = delta_bounds(a, b, epsilon, n)
    assert bounds.lower <= exact * (1 + 1e-10)
    assert bounds.upper >= exact * (1 - 1e-10)
    assert width(bounds) <= 1e-3


@pytest.mark.parametrize("n", [2, 5])
def test_loss_tail_of_a_gaussian(n):
    """``pdp``: the n-fold loss of a Gaussian is normal with mean n mu^2/2 and variance n mu^2."""
    grid = Grid(160.0, 32000)
    a, b = additive_pair(truncated_gaussian(grid, 4.0), grid)
    epsilons = np.array([0.0, 0.5, 2.0, 4.0])
    exact = np.exp(log_ndtr((n * 0.03125 - epsilons) / (math.sqrt(n) * 0.25)))
    bounds = delta_bounds(a, b, epsilons, n, "pdp")
    # The loss of a cell differs from that at its ends by half a cell, 0.01/16.
    assert np.all(bounds.lower <= exact * 1.02) and np.all(bounds.upper >= exact * 0.98)
    assert width(bounds) <= 2e-2


# --- properties ----------------------------------------------------------------------------------------------


@FEW
@example(pair=(np.array([0.0, 1.0]), np.array([0.5, 0.5])), n=8, epsilon=0.0, kind="adp")
@example(
    pair=(np.array([1 - 2.78946809e-10, 2.78946809e-10]), np.array([1 - 1.02618796e-10, 1.02618796e-10])),
    n=2,
    epsilon=0.0,
    kind="pdp",
)
@given(pair=small_pairs(), n=st.integers(1, 40), epsilon=st.floats(0.0, 5.0), kind=st.sampled_from(["adp", "pdp"]))
def test_more_buckets_bound_closer(pair, n, epsilon, kind):
    coarse = delta_bounds(*pair, epsilon, n, kind, buckets=500)
    fine = delta_bounds(*pair, epsilon, n, kind, buckets=20_000)
    # Beside the lattice there are the transform's rounding errors: up to a few U log2(length) n for each place read.
    slack = 1e-2 * coarse.upper + 5e-12 * n
    assert fine.lower <= coarse.upper and coarse.lower <= fine.upper
    assert fine.upper - fine.lower <= coarse.upper - coarse.lower + slack
    if kind == "adp":
        assert coarse.lower - slack <= fine.lower and fine.upper <= coarse.upper + slack


@FEW
@given(pair=small_pairs(), n=st.integers(1, 20), kind=st.sampled_from(["adp", "pdp"]))
def test_monotone_in_epsilon(pair, n, kind):
    epsilons = np.linspace(0.0, 6.0, 30)
    curve = delta_bounds(*pair, epsilons, n, kind, buckets=2000)
    assert np.all(np.diff(curve.upper) <= 0) and np.all(np.diff(curve.lower) <= 0)
    for i in (0, 11, 29):
        alone = delta_bounds(*pair, epsilons[i], n, kind, buckets=2000)
        assert alone.lower <= curve.upper[i] and curve.lower[i] <= alone.upper


@FEW
@given(pair=small_pairs(), epsilon=st.floats(0.0, 3.0))
def test_monotone_in_compositions(pair, epsilon):
    bounds = [delta_bounds(*pair, epsilon, n, buckets=5000) for n in (1, 2, 3, 8, 21)]
    for fewer, more in itertools.pairwise(bounds):
        assert fewer.lower <= more.upper
        assert fewer.distinguishing <= more.distinguishing * (1 + 1e-12)


@FEW
@given(pair=small_pairs(), n=st.integers(1, 20), epsilon=st.floats(0.0, 3.0), cut=st.integers(1, 4))
def test_merging_outcomes_never_raises_delta(pair, n, epsilon, cut):
    a, b = pair
    merged = [np.append(x[cut:], math.fsum(x[:cut])) for x in (a, b)]
    assert delta_bounds(*merged, epsilon, n, buckets=5000).lower <= delta_bounds(a, b, epsilon, n, buckets=5000).upper


@FEW
@given(pair=small_pairs(), n=st.integers(1, 20), epsilon=st.floats(0.0, 3.0), seed=st.integers(0, 99))
def test_permuting_splitting_and_padding_change_nothing(pair, n, epsilon, seed):
    a, b = pair
    plain = delta_bounds(a, b, epsilon, n, buckets=5000)
    order = np.random.default_rng(seed).permutation(a.size)
    # An outcome split in proportion (here in powers of two, exactly) carries no information.
    share = np.array([0.5, 0.25, 0.25])[:, None]
    for other in ((a[order], b[order]), ((a * share).ravel(), (b * share).ravel())):
        changed = delta_bounds(*other, epsilon, n, buckets=5000)
        np.testing.assert_allclose([changed.lower, changed.upper], [plain.lower, plain.upper], rtol=1e-6, atol=1e-300)
    padded = delta_bounds(np.insert(a, 1, 0.0), np.insert(b, 1, 0.0), epsilon, n, buckets=5000)
    assert (padded.lower, padded.upper) == (plain.lower, plain.upper)


@FEW
@given(half=st.lists(st.floats(0.0, 1.0), min_size=3, max_size=12), n=st.integers(1, 30), epsilon=st.floats(0.0, 2.0))
def test_both_orders_agree_for_symmetric_noise(half, n, epsilon):
    p = np.array(half + half[::-1]) + 1e-3
    p /= math.fsum(p)
    a, b = additive_pair(p, Grid(p.size / 2, p.size))
    one, other = delta_bounds(a, b, epsilon, n, buckets=5000), delta_bounds(b, a, epsilon, n, buckets=5000)
    np.testing.assert_allclose([one.lower, one.upper], [other.lower, other.upper], rtol=1e-9)


@FEW
@given(pair=small_pairs(-30.0), n=st.integers(1, 12), epsilon=st.floats(0.0, 3.0))
def test_epsilon_is_the_inverse_of_delta(pair, n, epsilon):
    a, b = pair
    delta = delta_bounds(a, b, epsilon, n, buckets=2000)
    if not 1e-12 < delta.upper < 1 - 1e-9:
        return
    bounds = epsilon_bounds(a, b, delta.upper, n, buckets=2000)
    assert 0 <= bounds.lower <= bounds.upper
    assert bounds.lower <= epsilon
    if math.isfinite(bounds.upper):
        assert delta_bounds(a, b, bounds.upper, n, buckets=2000).lower <= delta.upper


@FEW
@given(pair=small_pairs(), n=st.integers(1, 20), epsilon=st.floats(0.0, 3.0), kind=st.sampled_from(["adp", "pdp"]))
def test_atoms_given_directly(pair, n, epsilon, kind):
    a, b = pair
    both = (a > 0) & (b > 0)
    if not both.any():
        return
    losses = np.log(a[both]) - np.log(b[both])
    direct = delta_bounds_of_losses(losses, a[both], a[b == 0].sum(), epsilon, n, kind, buckets=5000)
    bounds = delta_bounds(a, b, epsilon, n, kind, buckets=5000)
    if kind == "adp":
        assert direct.lower <= bounds.upper * (1 + 1e-12) + 1e-15
        assert bounds.lower <= direct.upper * (1 + 1e-12) + 1e-15
    assert 0 <= direct.lower <= direct.upper <= 1


def test_array_modules(xp):
    grid = Grid(20.0, 400)
    a, b = subsampled_pair(truncated_gaussian(grid, 4.0), grid, 0.1)
    for n, kind in ((1, "adp"), (1, "pdp"), (16, "adp"), (16, "pdp"), (500, "adp")):
        for epsilon in (0.3, np.linspace(0.0, 1.0, 20)):
            ours = delta_bounds(xp.asarray(a), xp.asarray(b), epsilon, n, kind, 20_000)
            host = delta_bounds(a, b, epsilon, n, kind, 20_000)
            assert type(ours.upper) is (float if np.ndim(epsilon) == 0 else np.ndarray)
            np.testing.assert_allclose(ours.upper, host.upper, rtol=1e-8, atol=1e-300)
            np.testing.assert_allclose(ours.lower, host.lower, rtol=1e-8, atol=1e-300)
    assert epsilon_bounds(xp.asarray(a), xp.asarray(b), 1e-4, 16, 20_000).upper > 0
