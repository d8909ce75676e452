"""What noise leaks about answers that differ by less than the sensitivity: its privacy at smaller shifts.

For noise that falls from its centre no smaller shift leaks more (the paper's theorem 15). Here that is checked, for
one noise: at one epsilon by the evaluator, and for every epsilon and every number of compositions at once.
"""

from __future__ import annotations

import numpy as np

from optnoise.accounting import delta_bounds

EPS = float(np.finfo(float).eps)


def deciding_shifts(p: np.ndarray, shift: int) -> list[int]:
    """Shifts in cells, up to ``shift``, of which one leaks most, for noise ``p`` (2N,): the last, or else all.

    For noise that rises to a peak and falls after it, the last decides. Take gamma >= 1 and the sum of
    max(0, p_i - gamma p_(i-k)). Where i - k lies before the peak, p_(i-k) falls as k grows, so that the terms rise;
    where it lies after the peak, p_i <= p_(i-k) and there is no term. The order B/A is the same on the mirror image,
    gamma < 1 is the other order, and both orders of the subsampled pair are these sums at another gamma. So the last
    shift's pair is the most informative (Blackwell), and stays so under composition.
    """
    rises = np.sign(np.diff(p))
    rises = rises[rises != 0]
    return [shift] if (np.diff(rises) <= 0).all() else list(range(1, shift + 1))


def shifted_delta(p: np.ndarray, shift: int, *, epsilon: float, n: int, buckets: int) -> tuple[float, float]:
    """Bounds on the delta of noise ``p`` (2N,) between answers ``shift`` cells apart; both orders are equal."""
    nothing = np.zeros(shift)
    bounds = delta_bounds(np.append(p, nothing), np.append(nothing, p), epsilon, compositions=n, buckets=buckets)
    return float(bounds.lower), float(bounds.upper)


def excess_divergence(p: np.ndarray, shift: int) -> tuple[float, float]:
    """Bounds on the largest H_gamma at a smaller shift less H_gamma at ``shift``, over gamma >= 0 and shifts; or 0.

    H_gamma = sum max(0, A - gamma B) is convex in gamma and linear between the likelihood ratios of its pair. So the
    difference is convex between those of the pair at ``shift`` and largest at one of them, or in the limit: no grid of
    epsilons is needed. A pair with the smaller H for every gamma is the less informative (Blackwell), and stays so
    under composition (Dong, Roth and Su 2022).
    """
    whole = divergence_table(p, shift)
    gammas = whole[0][np.isfinite(whole[0])]
    value, error = divergence(whole, gammas)
    lower = upper = 0.0
    for smaller in range(1, shift):
        other, other_error = divergence(divergence_table(p, smaller), gammas)
        gap, rounding = other - value, other_error + error
        lower, upper = max(lower, float((gap - rounding).max())), max(upper, float((gap + rounding).max()))
    return lower, upper


def divergence_table(p: np.ndarray, shift: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(falling likelihood ratios (m,), A and B of the outcomes above each, (m + 1,)) of noise and shifted noise."""
    nothing = np.zeros(shift)
    a, b = np.append(p, nothing), np.append(nothing, p)
    finite = b > 0
    with np.errstate(over="ignore"):
        ratios = a[finite] / b[finite]
    order = np.argsort(-ratios, kind="stable")
    above = [np.cumsum(np.append(start, masses[finite][order])) for start, masses in ((a[~finite].sum(), a), (0.0, b))]
    return ratios[order], *above


def divergence(table: tuple[np.ndarray, np.ndarray, np.ndarray], gammas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(H, a bound on its rounding) at the finite ``gammas`` and in the limit, from a :func:`divergence_table`."""
    ratios, a, b = table
    count = np.append(np.searchsorted(-ratios, -gammas, side="left"), 0)
    first, second = a[count], np.append(gammas, 0.0) * b[count]
    return first - second, (ratios.size + 8) * EPS * (first + second)
