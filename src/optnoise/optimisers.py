"""Optimisers: Adam for a batch on either backend, and SciPy's L-BFGS for one noise on the host.

Neither knows what it minimises. Adam's rows never mix; a row whose value or gradient leaves the finite range
stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from optnoise.backend import array_namespace

DECAY_FIRST, DECAY_SECOND, TINY = 0.9, 0.999, 1e-8
MEMORY = 20


@dataclass(frozen=True)
class AdamState:
    """Parameters and both moments, each (W, P), after ``epoch`` steps; ``alive`` (W,): has stayed finite so far."""

    params: Any
    first: Any
    second: Any
    alive: Any
    epoch: int = 0


def adam_start(params: Any) -> AdamState:
    """Adam's state before the first step."""
    xp = array_namespace(params)
    return AdamState(params, xp.zeros_like(params), xp.zeros_like(params), xp.ones(len(params), dtype=bool))


def adam_step(
    state: AdamState,
    value: Any,
    gradient: Any,
    *,
    learning_rate: float,
    bounds: tuple[Any, Any] | None = None,
) -> AdamState:
    """One step of Adam (Kingma and Ba 2015) on every row, projected onto ``bounds``.

    value: (W,); gradient: (W, P). A row for which either is not finite, or that would leave the finite range, does
    not move any more.
    """
    xp = array_namespace(gradient)
    epoch = state.epoch + 1
    alive = state.alive & xp.isfinite(value) & xp.isfinite(xp.sum(xp.abs(gradient), axis=-1))
    with np.errstate(over="ignore", invalid="ignore"):
        gradient = xp.where(alive[:, None], gradient, 0.0)
        first = DECAY_FIRST * state.first + (1 - DECAY_FIRST) * gradient
        second = DECAY_SECOND * state.second + (1 - DECAY_SECOND) * gradient * gradient
        step = (first / (1 - DECAY_FIRST**epoch)) / (xp.sqrt(second / (1 - DECAY_SECOND**epoch)) + TINY)
        params = state.params - learning_rate * step
    if bounds is not None:
        params = xp.clip(params, *bounds)
    alive = alive & xp.isfinite(xp.max(xp.abs(params), axis=-1))
    return AdamState(xp.where(alive[:, None], params, state.params), first, second, alive, epoch)


@dataclass(frozen=True)
class Minimum:
    """Where L-BFGS ended: the point (P,), how many iterations it took, and whether it converged."""

    point: np.ndarray
    iterations: int
    converged: bool


def lbfgs(
    function: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    *,
    iterations: int,
    tolerance: float,
    callback: Callable[[], None] | None = None,
) -> Minimum:
    """Minimise ``function`` (value, gradient) from ``start`` (P,) by limited-memory BFGS, deterministically.

    tolerance: it has converged when an iteration lowers the value by less than this share. A value that is
    not finite counts as huge, so that the line search turns back.
    """
    from scipy.optimize import minimize

    def guarded(point):
        value, gradient = function(point)
        if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
            return 1e300, np.zeros_like(point)
        return value, gradient

    result = minimize(
        guarded,
        start,
        jac=True,
        method="L-BFGS-B",
        callback=None if callback is None else lambda intermediate_result: callback(),
        options={
            "maxiter": iterations,
            "maxfun": 20 * iterations,
            "maxcor": MEMORY,
            "ftol": tolerance,
            "gtol": 0.0,
        },
    )
    return Minimum(result.x, int(result.nit), result.status == 0)
