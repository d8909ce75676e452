"""Privacy loss distributions as atoms: their losses, moments, and the tilt and window a composition needs.

A pair of measures (A, B) gives, for each outcome with a, b > 0, the loss L = log(a/b) with mass a. Outcomes
with b = 0 are distinguishing events (infinite loss) and are kept apart; outcomes with a = 0 never count.
Nothing here but :func:`loss_of_masses` has to be right for a bound to be right: tilts and windows only decide
how wide the bounds of :mod:`optnoise.composition` come out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from optnoise.backend import array_namespace

U = 2.0**-53
"""Unit roundoff of float64."""

LOSS_ERROR = 12 * U
"""|fl(L) - L| <= LOSS_ERROR (1 + |L|), and LOSS_ERROR |L| for a and b within a factor 2 of each other."""

TAIL = 30.0
"""-log of the tilted mass allowed outside the window (on each side)."""

SHORT_TAIL = 18.0
"""The same where it makes that side of the window at least four times shorter."""


@dataclass(frozen=True)
class Atoms:
    """Finite atoms of a privacy loss distribution: ``losses`` and positive ``masses`` (arrays of one module).

    ``errors`` bounds the error of each loss; the masses are exact.
    """

    losses: Any
    masses: Any
    errors: Any

    @cached_property
    def extremes(self) -> tuple[float, float]:
        """Bounds on the least and the greatest loss."""
        return (self.losses - self.errors).min().item(), (self.losses + self.errors).max().item()

    @cached_property
    def loss_error(self) -> float:
        """The greatest of the errors."""
        return self.errors.max().item()

    @cached_property
    def log_masses(self) -> Any:
        return array_namespace(self.masses).log(self.masses)

    def where(self, kept: Any) -> Atoms:
        """The atoms that a mask keeps."""
        return Atoms(self.losses[kept], self.masses[kept], self.errors[kept])

    @property
    def size(self) -> int:
        return int(self.losses.shape[0])


def loss_of_masses(a: Any, b: Any) -> tuple[Any, Any]:
    """(L, error): log(a/b) of positive arrays and a bound on its error, also where a/b overflows or is subnormal.

    Near a = b, where a - b is exact, L = log1p((a - b)/b) is good relatively. Elsewhere the mantissas' quotient is
    within [1/2, 2], so its logarithm is good to a few U and the exponents' difference times log 2 to 2 U |L| more.
    (NumPy's and CUDA's log, log1p and exp are taken to be good to 4 ulp; they are.)
    """
    xp = array_namespace(a, b)
    mantissa_a, exponent_a = xp.frexp(a)
    mantissa_b, exponent_b = xp.frexp(b)
    losses = xp.log(mantissa_a / mantissa_b) + (exponent_a - exponent_b) * math.log(2.0)
    near = (a < 2 * b) & (b < 2 * a)
    losses = xp.where(near, xp.log1p(xp.where(near, a - b, 0.0) / b), losses)
    return losses, LOSS_ERROR * xp.where(near, xp.abs(losses), 1 + xp.abs(losses))


def cumulant(atoms: Atoms, theta: float) -> tuple[float, float, float]:
    """(Lambda, Lambda', Lambda'') at theta: log sum a e^(theta L), its mean and variance. Not rigorous."""
    xp = array_namespace(atoms.losses)
    exponent = theta * atoms.losses + atoms.log_masses
    peak = exponent.max().item()
    weight = xp.exp(exponent - peak)
    total = weight.sum().item()
    mean = (weight * atoms.losses).sum().item() / total
    variance = (weight * (atoms.losses - mean) ** 2).sum().item() / total
    return peak + math.log(total), mean, variance


def saddle_point(atoms: Atoms, target: float, compositions: int) -> float:
    """theta >= 0 with n Lambda'(theta) = target, or 0 where the mean is above it. Any value is valid."""
    _, mean, variance = cumulant(atoms, 0.0)
    if compositions * mean >= target:
        return 0.0
    low, high, theta = 0.0, math.inf, 0.0
    limit = 1e9 / (1.0 + compositions * max(abs(loss) for loss in atoms.extremes))
    for _ in range(60):
        error = compositions * mean - target
        if abs(error) <= 0.02 * math.sqrt(compositions * variance):
            break
        if error < 0:
            low = theta
        else:
            high = theta
        step = -error / (compositions * variance) if variance > 0 else math.inf
        theta = theta + step
        if not low < theta < high or not math.isfinite(theta):
            theta = 0.5 * (low + high) if math.isfinite(high) else 2 * low + 1.0
        theta = min(theta, 4 * low + 1e3) if not math.isfinite(high) else theta
        if theta > limit:
            return limit
        _, mean, variance = cumulant(atoms, theta)
    return theta


@dataclass(frozen=True)
class Window:
    """[bottom, top] for the tilted k-fold loss, and the two tilts at which Chernoff bounds what is outside."""

    bottom: float
    top: float
    bottom_tilt: float
    top_tilt: float
    mean: float
    deviation: float


def choose_window(atoms: Atoms, tilt: float, compositions: int) -> Window:
    """A window that holds the tilted k-fold loss up to a mass of e^-TAIL on either side."""
    n = compositions
    value, mean, variance = cumulant(atoms, tilt)
    extreme = max(abs(loss) for loss in atoms.extremes)
    # A single loss has no deviation; its window must still be wide beside the rounding of losses.
    narrowest = max(1e-6 * extreme * n, 1e-9)
    deviation = max(math.sqrt(n * variance), narrowest)

    def edge(sign: int, tail: float) -> tuple[float, float]:
        """(distance from the mean at which Chernoff's bound is e^-tail, the tilt that shows it)."""
        best = math.inf, tilt
        step = math.sqrt(2 * tail) / deviation
        for _ in range(30):
            growth = n * (cumulant(atoms, tilt + sign * step)[0] - value - sign * step * mean)
            best = min(best, ((max(growth, 0.0) + tail) / step, tilt + sign * step))
            # The best step has a growth like the tail; a normal loss has it at once, rare large losses far below.
            if 0.3 * tail <= growth <= 3 * tail:
                break
            if step >= tail / narrowest:
                break
            step *= min(max(math.sqrt(tail / growth), 0.1), 4.0) if growth > 0 else 4.0
            step = min(step, tail / narrowest)
        return best

    sides = []
    for sign in (1, -1):
        side = edge(sign, TAIL)
        if side[0] > 2 * math.sqrt(2 * TAIL) * deviation:
            # A few heavy outliers must not coarsen the whole lattice.
            short = edge(sign, SHORT_TAIL)
            side = short if 4 * short[0] < side[0] else side
        sides.append(side)
    (above, top_tilt), (below, bottom_tilt) = sides
    return Window(n * mean - below, n * mean + above, bottom_tilt, top_tilt, n * mean, deviation)
