"""What no noise can beat: lower bounds on delta, epsilon and the utility loss under n compositions.

Each function returns a proven number for every symmetric unimodal noise on [-r, r] (see
:mod:`optnoise.envelope_programs`), from the plain envelope or, given an :class:`optnoise.tightening.Effort`, from
bound tightening, which is stronger and costs seconds instead of fractions of one. ``known`` is what some noise is
known to achieve: the search for the best provable number stays below it. Plain bounds are evaluated by the accountant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from optnoise.envelope import Envelope, envelope
from optnoise.envelope_programs import Problem
from optnoise.tightening import QUICK, Effort, plain_envelope, prove_impossible


def impossible_region(
    problem: Problem,
    utilities: Sequence[float],
    *,
    epsilon: float,
    compositions: Sequence[int],
    programs: int = 24,
    nodes: int = 180,
    progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """(utilities, compositions): no noise with that utility loss has a smaller delta. One envelope serves every n."""
    out = np.zeros((len(utilities), len(compositions)))
    for i, utility in enumerate(utilities):
        bound = envelope(problem, float(utility), programs=programs, nodes=nodes)
        out[i] = [bound.delta(epsilon, n) for n in compositions]
        if progress is not None:
            progress(i + 1, len(utilities))
    return out


def delta_lower(
    problem: Problem,
    utility: float,
    *,
    epsilon: float,
    compositions: int,
    known: float | None = None,
    effort: Effort | None = None,
    tolerance: float = 0.02,
) -> float:
    """A delta(epsilon) that no noise with utility loss at most ``utility`` goes below.

    known: a delta that is reached (tightening only: where to search). tolerance: relative, of the search.
    """
    plain = float(envelope(problem, utility).delta(epsilon, compositions))
    if effort is None:
        return plain
    first = plain_envelope(problem, utility, effort)

    def provable(delta: float) -> bool:
        return prove_impossible(
            problem,
            utility,
            delta=delta,
            epsilon=epsilon,
            compositions=compositions,
            effort=effort,
            first=first,
        ).impossible

    high = _known("known", known, 1.0)
    low = max(plain, 1e-3 * high)
    if low > plain and not provable(low):
        return plain
    return _bisect(provable, low, high, tolerance)


def epsilon_lower(
    problem: Problem,
    utility: float,
    *,
    delta: float,
    compositions: int,
    known: float | None = None,
    effort: Effort | None = None,
    tolerance: float = 0.01,
) -> float:
    """An epsilon that no noise with utility loss at most ``utility`` goes below at ``delta``; 0 proves nothing.

    known: an epsilon that is reached (tightening only). tolerance: relative, of the search.
    """
    from optnoise.accounting import epsilon_bounds

    bound = envelope(problem, utility, nodes=360, programs=40)
    plain = max(float(epsilon_bounds(*bound.atoms(order), delta, compositions).lower) for order in problem.orders)
    if effort is None:
        return plain
    first = plain_envelope(problem, utility, effort)

    def provable(epsilon: float) -> bool:
        return prove_impossible(
            problem,
            utility,
            delta=delta,
            epsilon=epsilon,
            compositions=compositions,
            effort=effort,
            first=first,
        ).impossible

    high = _known("known", known, 2 * plain)
    return _bisect(provable, plain, high, tolerance) if plain > 0 else plain


def utility_lower(
    problem: Problem,
    *,
    delta: float,
    epsilon: float,
    compositions: int,
    known: float,
    effort: Effort | None = None,
    tolerance: float = 0.01,
) -> float:
    """A utility loss (u_1 or u_2) that no noise with n-fold delta(epsilon) at most ``delta`` goes below.

    known: the utility loss of some noise that has such a delta. tolerance: relative, in the units of the query
    (of the root for ``l2``). Returns 0 where nothing is proven down to a hundredth of the known noise's width.
    """
    power = 1 if problem.loss == "l1" else 2

    def plain(width: float) -> bool:
        return float(envelope(problem, width**power, programs=24).delta(epsilon, compositions)) > delta

    high = _known("known", known, None) ** (1 / power)
    least, low = high / 100, high / 1.5
    while not plain(low):
        low, high = low / 1.5, low
        if low < least:
            return 0.0
    width = _bisect(plain, low, high, 0.02 if effort else tolerance)
    if effort:

        def provable(candidate: float) -> bool:
            return prove_impossible(
                problem,
                candidate**power,
                delta=delta,
                epsilon=epsilon,
                compositions=compositions,
                effort=effort,
            ).impossible

        width = _bisect(provable, width, known ** (1 / power), tolerance)
    return width**power


def _bisect(provable: Callable[[float], bool], low: float, high: float, tolerance: float) -> float:
    """The largest argument found provable, from one that is (``low``), to within a factor 1 + tolerance."""
    while high > low * (1 + tolerance):
        middle = math.sqrt(low * high)
        if provable(middle):
            low = middle
        else:
            high = middle
    return low


def _known(name: str, value: float | None, default: float | None) -> float:
    value = default if value is None else value
    if value is None or not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name}: {value!r} is not allowed; it must be positive and finite")
    return float(value)


__all__ = [
    "QUICK",
    "Effort",
    "Envelope",
    "Problem",
    "delta_lower",
    "epsilon_lower",
    "impossible_region",
    "utility_lower",
]
