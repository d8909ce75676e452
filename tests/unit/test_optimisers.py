"""Adam against its own definition, L-BFGS on functions with known minima."""

from __future__ import annotations

import numpy as np
import pytest

from optnoise.backend import to_host
from optnoise.optimisers import adam_start, adam_step, lbfgs


def test_adam_follows_its_definition(xp):
    rng = np.random.default_rng(0)
    params = rng.standard_normal((3, 5))
    state = adam_start(xp.asarray(params))
    first, second = np.zeros_like(params), np.zeros_like(params)
    for epoch in range(1, 8):
        gradient = rng.standard_normal(params.shape)
        rate = 0.1 * 0.9**epoch
        state = adam_step(state, xp.asarray(np.ones(3)), xp.asarray(gradient), learning_rate=rate)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        params = params - rate * (first / (1 - 0.9**epoch)) / (np.sqrt(second / (1 - 0.999**epoch)) + 1e-8)
    assert to_host(state.params) == pytest.approx(params, rel=1e-12)
    assert state.epoch == 7


def test_adam_keeps_to_bounds_and_stops_rows_that_are_not_finite(xp):
    params = np.ones((3, 2))
    gradient = np.array([[1.0, -1.0], [np.nan, 1.0], [1.0, 1.0]])
    value = np.array([1.0, 1.0, np.inf])
    bounds = xp.asarray(np.zeros(2)), xp.asarray(np.full(2, np.inf))
    state = adam_start(xp.asarray(params))
    for _ in range(40):
        state = adam_step(state, xp.asarray(value), xp.asarray(gradient), learning_rate=0.05, bounds=bounds)
    found = to_host(state.params)
    assert found[0, 0] == 0.0 and found[0, 1] > 2.5
    assert np.array_equal(found[1:], params[1:])


def test_lbfgs_finds_the_minimum():
    scales = np.geomspace(1.0, 1e4, 30)
    target = np.linspace(-1.0, 1.0, 30)
    calls = []

    def function(point):
        return float(0.5 * np.sum(scales * (point - target) ** 2)), scales * (point - target)

    end = lbfgs(function, np.zeros(30), iterations=3000, tolerance=1e-13, callback=lambda: calls.append(1))
    assert end.converged and len(calls) == end.iterations
    assert end.point == pytest.approx(target, abs=1e-4)
    again = lbfgs(function, np.zeros(30), iterations=3000, tolerance=1e-13)
    assert np.array_equal(again.point, end.point)


def test_lbfgs_counts_and_turns_back_from_what_is_not_finite():
    def function(point):
        if point[0] > 1.5:
            return np.nan, np.full(1, np.nan)
        return float(-point[0] + 0.5 * point[0] ** 2), point - 1.0

    end = lbfgs(function, np.array([-1000.0]), iterations=50, tolerance=1e-14)
    assert end.point[0] == pytest.approx(1.0, abs=1e-5)
    short = lbfgs(lambda x: (float(np.sum((x - 1) ** 4)), 4 * (x - 1) ** 3), np.zeros(3), iterations=2, tolerance=0.0)
    assert not short.converged and short.iterations == 2
