"""The mechanism: exact integer weights, exact cryptographic draws, refusals, and files that read back."""

from __future__ import annotations

import math
import secrets
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from optnoise.accounting import delta_bounds
from optnoise.baselines import staircase, truncated_gaussian
from optnoise.grid import Grid
from optnoise.mechanism import BITS, Mechanism, guarantee
from optnoise.pairs import additive_pair, subsampled_pair

GRID = Grid(5, 40)
GAUSSIAN = Mechanism.from_masses(truncated_gaussian(GRID, 1.5), GRID)


@given(
    half=st.lists(st.floats(0, 1, allow_subnormal=False), min_size=1, max_size=30).filter(lambda z: sum(z) > 1e-3),
    bits=st.integers(8, BITS),
)
def test_rounding_keeps_symmetry_order_zeros_and_total(half: list[float], bits: int) -> None:
    half = sorted(half, reverse=True)
    grid = Grid(len(half), 2 * len(half))
    p = np.array(half[::-1] + half) / (2 * math.fsum(half))
    mechanism = Mechanism.from_masses(p, grid, bits=bits)
    outwards = mechanism.weights[grid.half_cells :]
    assert sum(mechanism.weights) == 2**bits
    assert list(outwards) == sorted(outwards, reverse=True)
    assert all(weight == 0 for weight, mass in zip(outwards, half, strict=True) if mass == 0)
    # each loses less than one unit, and the centre cells share what was lost
    assert np.abs(mechanism.masses - p).max() <= (1 + len(half)) * 2.0 ** (1 - bits)


def test_masses_are_exact() -> None:
    assert [Fraction(mass) for mass in GAUSSIAN.masses] == [Fraction(w, 2**BITS) for w in GAUSSIAN.weights]
    assert sum(map(Fraction, GAUSSIAN.masses)) == 1


def test_draws_follow_the_weights() -> None:
    """A chi-square test at level 1e-6: fails once in a million runs when right, always when a cell is off by one."""
    size = 40_000
    draws = GAUSSIAN.sample(size)
    observed = np.bincount((draws + GRID.cells - 1) // 2, minlength=GRID.cells)
    expected = GAUSSIAN.masses * size
    assert expected.min() >= 5  # what the test's approximation needs
    assert stats.chisquare(observed, expected).pvalue > 1e-6
    assert stats.chisquare(np.roll(observed, 1), expected).pvalue < 1e-6


def test_draws_are_bits_of_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every draw is one call of secrets.randbits and nothing else; the first and last bit patterns hit the ends."""
    asked = []
    answers = iter([0, 2**BITS - 1, GAUSSIAN.weights[0], GAUSSIAN.weights[0] - 1])

    def randbits(bits: int) -> int:
        asked.append(bits)
        return next(answers)

    monkeypatch.setattr(secrets, "randbits", randbits)
    assert GAUSSIAN.sample(4).tolist() == [-39, 39, -37, -39]
    assert asked == [BITS] * 4


def test_cells_without_weight_are_never_drawn() -> None:
    grid = Grid(3, 6)
    mechanism = Mechanism(grid, (0, 1, 1, 1, 1, 0), bits=2)
    assert set(mechanism.sample(2000).tolist()) == {-3, -1, 1, 3}


def test_noise_is_a_whole_number_of_steps() -> None:
    draws = GAUSSIAN.sample(1000)
    assert draws.dtype == np.int64 and np.all(draws % 2 == 1)
    assert Fraction(1, 8) == GAUSSIAN.step
    assert np.isin(draws * float(GAUSSIAN.step), GRID.centres).all()


def test_release_is_exact_and_stays_on_the_grid() -> None:
    for value in (7, Fraction(-29, 4), 2.25):
        noise = (GAUSSIAN.release(value) - Fraction(value)) / GAUSSIAN.step
        assert noise.denominator == 1 and abs(noise) < GRID.cells


@pytest.mark.parametrize("value", [0.1, Fraction(1, 3), math.pi])
def test_release_refuses_values_off_the_grid(value: object) -> None:
    with pytest.raises(ValueError, match=r"^value: .* is no multiple of the cell width 1/4; round the query"):
        GAUSSIAN.release(value)
    noise = (GAUSSIAN.release(value, rounding="nearest") - Fraction(value)) / GAUSSIAN.step
    assert abs(noise) <= GRID.cells


@given(st.fractions(-50, 50), st.fractions(-1, 1))
def test_rounding_does_not_raise_the_sensitivity(value: Fraction, change: Fraction) -> None:
    width = 2 * GAUSSIAN.step

    def rounded(x: Fraction) -> Fraction:
        return math.floor(x / width + Fraction(1, 2)) * width

    assert abs(rounded(value + change) - rounded(value)) <= 1


@pytest.mark.parametrize(
    "value",
    [
        np.uint8(200),
        np.int8(100),
        np.int16(5000),
        np.int32(2 * 10**8),
        np.int64(2**62),
        np.uint64(2**63),
        np.float32(1.5),
    ],
)
@pytest.mark.parametrize("rounding", [None, "nearest"])
def test_numpy_numbers_release_as_pythons_do(value: np.generic, rounding: str | None) -> None:
    """Their arithmetic would overflow, in a way that depends on the noise drawn."""
    for _ in range(50):
        released = GAUSSIAN.release(value, rounding=rounding)
        assert abs(released - Fraction(value.item())) <= GRID.half_width
        assert type(released.numerator) is int and math.gcd(released.numerator, released.denominator) == 1


def test_the_guarantee_holds_for_every_smaller_difference() -> None:
    """Peaks one sensitivity apart hide a difference of exactly that, and of nothing less."""
    grid = Grid(3, 12)
    p = np.zeros(12)
    p[[0, 2, 4, 6]] = p[[5, 7, 9, 11]] = 1 / 8
    p = (p + p[::-1]) / 2
    mechanism = Mechanism.from_masses(p, grid)
    found = guarantee(mechanism, epsilon=0.3, compositions=1)
    worst = max(delta_bounds(np.append(p, [0] * k), np.append([0] * k, p), 0.3).lower for k in (1, 2))
    assert found["delta"] >= worst > delta_bounds(*additive_pair(p, grid), 0.3).upper


@pytest.mark.parametrize("value", [math.nan, math.inf, "x", None, "1/0", "1e400", "1e999999999", "9" * 5000, 10**301])
def test_release_refuses_what_is_no_number(value: object) -> None:
    with pytest.raises(ValueError, match=r"^value: .* it must be a finite number"):
        GAUSSIAN.release(value, rounding="nearest")


def test_files_read_back(tmp_path) -> None:
    mechanism = Mechanism.from_masses(staircase(GRID, 0.3), GRID, card={"name": "stairs", "seed": 3})
    mechanism.save(tmp_path / "stairs.v1")
    for ending in ("csv", "json"):
        assert Mechanism.load(tmp_path / f"stairs.v1.{ending}") == mechanism


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("m.json", "{", "m.json: not a mechanism's card"),
        ("m.json", '{"bits": 52}', "m.json: not a mechanism's card"),
        ("m.json", '{"grid": {"half_width": 1e999, "cells": 40}, "bits": 52}', "m.json: not a mechanism's card"),
        ("m.json", '{"grid": {"half_width": 5, "cells": 40}, "bits": 52.0}', "m.csv: bits: 52.0 is not allowed"),
        (
            "m.json",
            '{"grid": {"half_width": 10, "cells": 40}, "bits": 52, "weights sha256": "0"}',
            "m.json: its guarantee is not of these weights on this grid",
        ),
        ("m.csv", "x,weight\n0,a\n", "m.csv: not a table of weights"),
        ("m.csv", "x,weight\n0,1\n", "m.csv: weights: 1 weights do not fit the grid's 40 cells"),
        ("m.csv", "x,weight\n" + "0,1\n" * 40, r"m.csv: weights: they sum to 40, and must sum to 2\^52"),
    ],
)
def test_broken_files_are_refused(tmp_path, file: str, content: str, message: str) -> None:
    GAUSSIAN.save(tmp_path / "m")
    (tmp_path / file).write_text(content)
    with pytest.raises(ValueError, match=message):
        Mechanism.load(tmp_path / "m.json")


def test_missing_file_is_named(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"m.json: no such file"):
        Mechanism.load(tmp_path / "m.csv")


def test_guarantee_holds_the_closed_form() -> None:
    """Uniform noise at epsilon 0, once: delta is the shift's share of the range."""
    grid = Grid(4, 8)
    mechanism = Mechanism(grid, (1,) * 8, bits=3)
    card = guarantee(mechanism, epsilon=0.0, compositions=1)
    for order in card["orders"].values():
        assert order["delta_lower"] <= 1 / 8 <= order["delta_upper"] <= 1 / 8 * (1 + 1e-9)
    assert card["utility"]["mean_absolute_error"] == pytest.approx(2)
    assert card["range"]["most_error"] == 4


def test_guarantee_is_that_of_the_worse_order_and_of_all_rounds() -> None:
    """Subsampled, the orders differ; the card states the greater delta, after the rounds asked for."""
    card = guarantee(GAUSSIAN, epsilon=0.2, compositions=3, pair="subsampled", q=0.1)
    a, b = subsampled_pair(GAUSSIAN.masses, GRID, 0.1)
    one, other = delta_bounds(a, b, 0.2, 3), delta_bounds(b, a, 0.2, 3)
    assert one.upper != pytest.approx(other.upper, rel=0.01)
    assert card["orders"]["A/B"] == {"delta_lower": one.lower, "delta_upper": one.upper}
    assert card["orders"]["B/A"] == {"delta_lower": other.lower, "delta_upper": other.upper}
    assert card["delta"] == max(one.upper, other.upper)
    assert (card["epsilon"], card["compositions"], card["pair"], card["q"]) == (0.2, 3, "subsampled", 0.1)
