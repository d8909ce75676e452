"""Composed bounds where they are tightest to get wrong: few buckets, narrow windows, any tilt, sums a little off."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from optnoise.accounting import KINDS, delta_bounds, epsilon_bounds
from optnoise.composed_sums import divergence_bounds, tail_bounds
from optnoise.composition import compose, connect_the_dots, round_down
from optnoise.pld import Atoms, Window, choose_window, loss_of_masses, saddle_point

PAIRS = {
    "two outcomes": ([0.55, 0.45], [0.45, 0.55]),
    "three outcomes": ([0.3, 0.6, 0.1], [0.25, 0.55, 0.2]),
    "skewed": ([0.7, 0.2, 0.1], [0.75, 0.24, 0.01]),
    "skewed, swapped": ([0.75, 0.24, 0.01], [0.7, 0.2, 0.1]),
}


def sums(a, b, n):
    """(probability under A, loss) of every sum of n losses."""
    found = []
    losses = [math.log(x / y) for x, y in zip(a, b, strict=True)]
    for counts in itertools.product(range(n + 1), repeat=len(a)):
        if sum(counts) == n:
            ways = math.factorial(n) // math.prod(map(math.factorial, counts))
            found.append(
                (
                    ways * math.prod(x**c for x, c in zip(a, counts, strict=True)),
                    math.fsum(c * loss for c, loss in zip(counts, losses, strict=True)),
                )
            )
    return found


def exact(found, epsilon, kind):
    if kind == "pdp":
        return math.fsum(mass for mass, loss in found if loss > epsilon)
    return math.fsum(mass * -math.expm1(min(epsilon - loss, 0.0)) for mass, loss in found)


def between_atoms(found):
    """Epsilons on both sides of the possible losses and far from all of them, as rounding decides nothing there."""
    places = sorted({round(loss, 9) for _, loss in found if loss > 0})
    places = [0.0, *places, places[-1] + 0.1]
    return np.array([low + share * (high - low) for low, high in itertools.pairwise(places) for share in (0.1, 0.9)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 5, 12])
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_few_buckets_bound_from_both_sides(pair, n, kind):
    """A coarse lattice, whose rounding is far above that of floats: it must err on the right side."""
    a, b = map(np.array, pair)
    found = sums(*pair, n)
    epsilons = between_atoms(found)
    truth = np.array([exact(found, epsilon, kind) for epsilon in epsilons])
    for buckets in (30, 100, 400, 3000):
        bounds = delta_bounds(a, b, epsilons, n, kind, buckets)
        assert np.all(bounds.lower <= truth * (1 + 1e-12))
        assert np.all(bounds.upper >= truth * (1 - 1e-12))
    assert np.all(bounds.lower <= bounds.upper)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_any_window_and_any_tilt_bound(pair, kind):
    """What lies outside the window is added and subtracted; nothing relies on the window being well chosen."""
    n, buckets = 10, 400
    a, b = map(np.array, pair)
    losses, errors = loss_of_masses(a, b)
    atoms = Atoms(losses, a, errors)
    found = sums(*pair, n)
    epsilons = between_atoms(found)
    truth = np.array([exact(found, epsilon, kind) for epsilon in epsilons])
    rounding, bounds = (connect_the_dots, divergence_bounds) if kind == "adp" else (round_down, tail_bounds)
    informative = 0
    for target, excess in itertools.product((0.0, 0.3, 0.8), (0.5, 1.0, 2.0)):
        tilt = excess * saddle_point(atoms, target, n)
        good = choose_window(atoms, tilt, n)
        for low, high in ((0.0, 1.0), (0.3, 0.7), (0.45, 0.55), (0.0, 0.5), (0.0, 0.6), (0.5, 1.0), (0.55, 0.9)):
            width = good.top - good.bottom
            bottom, top = good.bottom + low * width, good.bottom + high * width
            window = Window(bottom, top, good.bottom_tilt, good.top_tilt, good.mean, good.deviation)
            composed = compose(atoms, tilt, window, n, buckets, rounding)
            lower, upper = bounds(composed, epsilons, epsilons + 2 * n * atoms.loss_error)
            assert np.all(lower <= truth * (1 + 1e-12) + 1e-300)
            assert np.all(upper >= truth * (1 - 1e-12))
            informative += np.sum((lower > 0.5 * truth) & (upper < 2 * truth))
    assert informative > 20


@pytest.mark.parametrize("n", [1, 2, 16])
def test_epsilon_on_both_sides_with_few_buckets(n):
    """The least epsilon for a delta that was computed from it; the bounds enclose it, however coarse."""
    a, b = PAIRS["three outcomes"]
    found = sums(a, b, n)
    for epsilon in (0.02 * n**0.5, 0.1 * n**0.5, 0.17 * n**0.5):
        delta = exact(found, epsilon, "adp")
        for buckets in (64, 1000):
            bounds = epsilon_bounds(np.array(a), np.array(b), delta, n, buckets)
            assert bounds.lower <= epsilon * (1 + 1e-9)
            assert bounds.upper >= epsilon * (1 - 1e-9)
            if n == 1:  # a direct sum, the same for one epsilon and for many
                assert delta_bounds(np.array(a), np.array(b), bounds.upper).upper <= delta * (1 + 1e-13)
                assert delta_bounds(np.array(a), np.array(b), bounds.lower).upper >= delta * (1 - 1e-13)


@pytest.mark.parametrize("off_a", [-9e-10, 9e-10])
@pytest.mark.parametrize("off_b", [-9e-10, 9e-10])
def test_both_readings_of_sums_that_are_off(off_a, off_b):
    """One round is a direct sum, good to 1e-14: sums off by 1e-9 show, in either reading."""
    a, b = np.array([0.75, 0.25]) * (1 + off_a), np.array([0.25, 0.75]) * (1 + off_b)
    with mpmath.workdps(40):
        x, y = [mpmath.mpf(Fraction(float(v[0])).numerator) / Fraction(float(v[0])).denominator for v in (a, b)]
        whole_a, whole_b = [mpmath.fsum(map(mpmath.mpf, v.tolist())) for v in (a, b)]
        for epsilon in (0.0, 0.5, 1.0):
            literal = x - mpmath.exp(epsilon) * y
            normalised = x / whole_a - mpmath.exp(epsilon) * y / whole_b
            bounds = delta_bounds(a, b, epsilon, 1)
            assert bounds.lower <= min(literal, normalised) and max(literal, normalised) <= bounds.upper
            assert bounds.upper - bounds.lower <= 1e-8
