"""From a requirement (epsilon, delta, n, loss, range, sensitivity) to the best noise found that meets it.

One release is a linear program, solved to its optimum. Under composition the search is over the utility loss: the
noise of least delta for a given utility loss comes from :func:`optnoise.best_noise.best_noise`, and the smallest
utility loss whose delta is low enough is bracketed between a fraction of the best truncated Gaussian's and that
Gaussian's own. Whether a noise meets the requirement is decided by the evaluator's upper bound alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optnoise.accounting import delta_bounds
from optnoise.baselines import truncated_gaussian, truncated_laplace
from optnoise.grid import Grid
from optnoise.pairs import additive_pair

SAFETY = 1e-9  # relative room under delta for the rounding to integer weights


@dataclass(frozen=True)
class Design:
    """A noise (2N,) that meets the requirement, its utility loss (u_1 or u_2) and delta (upper bound)."""

    noise: np.ndarray
    utility: float
    delta: float


def design(
    grid: Grid,
    *,
    loss: str,
    epsilon: float,
    delta: float,
    compositions: int,
    tolerance: float = 2e-3,
    growth: float = 1.4,
) -> Design:
    """The noise of least utility loss found with delta_n(epsilon) <= ``delta``; monotone, additive pair.

    tolerance: relative, of the search over the utility loss at n > 1. growth: see
    :func:`~optnoise.best_noise.best_noise`. Raises ``ValueError`` when nothing found on
    this range meets the requirement, with the least delta that was reached.
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta: {delta!r} is not allowed; it must be in (0, 1)")
    target = delta * (1 - SAFETY)
    if compositions == 1:
        from optnoise.certificates import linear_program

        found = linear_program(grid, loss=loss, epsilon=epsilon, delta=target)
        return _judged(found.noise, grid, loss, epsilon, 1)
    from optnoise.best_noise import best_noise

    high = analytic(grid, "gaussian", loss=loss, epsilon=epsilon, delta=target, compositions=compositions)
    power = 1 if loss == "l1" else 2

    def attempt(utility: float) -> Design:
        # Not from the noise of the attempt before: best responses stay near it, and end 3 % wider.
        found = best_noise(grid, loss=loss, utility=utility, compositions=compositions, epsilon=epsilon, growth=growth)
        return _judged(found.noise, grid, loss, epsilon, compositions)

    if high is None:
        high = attempt(least_delta(grid, loss=loss, epsilon=epsilon, compositions=compositions).utility)
        if high.delta > target:
            reach = f"[-{grid.half_width:g}, {grid.half_width:g}]"
            raise ValueError(
                f"delta: {delta!r} is not reached on {reach} with n = {compositions} and epsilon = {epsilon:g}; "
                f"the least found is {high.delta:.3g}: widen the range, or allow a larger delta or epsilon"
            )
    narrowest = np.zeros(grid.cells)
    narrowest[grid.half_cells - 1 : grid.half_cells + 1] = 0.5
    least = _judged(narrowest, grid, loss, epsilon, compositions)
    if least.delta <= target:
        return least
    low_width = max(0.5 * high.utility ** (1 / power), (1 + tolerance) * least.utility ** (1 / power))
    # Between widths delta falls about geometrically: aim where the logarithms say, never too near an end.
    low_log, high_log = 0.0, math.log(max(high.delta, 1e-300))
    while True:
        width = high.utility ** (1 / power)
        if width <= low_width * (1 + tolerance):
            return high
        share = (low_log - math.log(target)) / max(low_log - high_log, 1e-12)
        share = min(max(share, 0.25), 0.9)
        trial = attempt((low_width + share * (width - low_width)) ** power)
        if trial.delta <= target and trial.utility < high.utility:
            high, high_log = trial, math.log(max(trial.delta, 1e-300))
        else:
            low_width = low_width + share * (width - low_width)
            low_log = math.log(max(trial.delta, 1e-300))


def analytic(grid: Grid, family: str, *, loss: str, epsilon: float, delta: float, compositions: int) -> Design | None:
    """The truncated ``gaussian`` or ``laplace`` of least width that meets the requirement, or None when none does."""
    noise_of: dict[str, Callable[[float], np.ndarray]] = {
        "gaussian": lambda width: truncated_gaussian(grid, width),
        "laplace": lambda width: truncated_laplace(grid, width),
    }
    make = noise_of[family]

    def judged(width: float) -> Design:
        return _judged(make(width), grid, loss, epsilon, compositions)

    widths = np.geomspace(grid.sensitivity / 4, 2 * grid.half_width, 40)
    low = widths[0]
    for width in widths:
        found = judged(float(width))
        if found.delta <= delta:
            break
        low = width
    else:
        return None
    high = float(width)
    while high > low * (1 + 1e-6):
        middle = math.sqrt(low * high)
        trial = judged(middle)
        if trial.delta <= delta:
            high, found = middle, trial
        else:
            low = middle
    return found


def least_delta(grid: Grid, *, loss: str, epsilon: float, compositions: int) -> Design:
    """The truncated Gaussian of least delta on this range: a wider one loses more by its edges than it gains."""
    widths = np.geomspace(grid.sensitivity / 4, 2 * grid.half_width, 40)
    designs = [_judged(truncated_gaussian(grid, float(w)), grid, loss, epsilon, compositions) for w in widths]
    return min(designs, key=lambda one: one.delta)


def _judged(noise: np.ndarray, grid: Grid, loss: str, epsilon: float, compositions: int) -> Design:
    """A noise with its utility loss and the evaluator's upper bound on delta (the orders are equal by symmetry)."""
    a, b = additive_pair(noise, grid)
    upper = delta_bounds(a, b, epsilon, compositions).upper
    return Design(noise, float(noise @ grid.cost(loss)), float(upper))
