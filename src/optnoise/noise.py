"""Noise models: from learned parameters to cell masses, and gradients back, both exact.

Every model makes a non-negative half vector z_1..z_N (left edge to centre); the noise is its mirror image,
normalised: p = [z, reversed z] / (2 sum z). Parameters and masses carry a leading batch axis W, one noise for
each utility weight, and rows never mix: a row's result does not depend on the rest of the batch.

- ``increments``: z = cumsum(v), v_i >= 0. Monotone by construction; v_i may be exactly 0, so the outermost
  cells can reach exactly zero and the truncation range is learned.
- ``free``: z = exp(theta), so p is a softmax on the half; symmetric, not monotone.
- ``sigmoid``: stacked sigmoid functions (the paper's model, section 3.1), in :mod:`optnoise.sigmoid`.
- ``cnn``: dense and convolutional layers (the paper's appendix B), in :mod:`optnoise.cnn`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from optnoise.backend import array_namespace
from optnoise.spec import MODELS, TrainSpec


class NoiseModel(Protocol):
    """What every noise model offers; W noises with P parameters each on a grid of 2N cells."""

    def initial(self) -> Any:
        """Starting parameters (W, P), float64, decided by the spec's seed alone and equal in every row."""

    def forward(self, params: Any) -> tuple[Any, Any]:
        """(masses (W, 2N), tape for :meth:`pull_back`); masses are >= 0, symmetric and sum to 1."""

    def pull_back(self, tape: Any, dp: Any) -> Any:
        """Gradient (W, P) with respect to the parameters from the one with respect to the masses (W, 2N)."""

    def bounds(self) -> tuple[Any, Any] | None:
        """(lower, upper), each (P,), or ``None`` when every real parameter is allowed."""

    def from_masses(self, p: Any) -> Any:
        """Parameters (W, P) whose noise is ``p``, shape (2N,) or (W, 2N): a warm start."""

    def scales(self, params: Any, price: Any) -> Any:
        """How far parameters may go, (W, P), for a step to change the loss about equally by each of them.

        price (W, N): what a mass in each cell of the half adds to the loss. Of increments it is the square root that
        is meant. Only their ratios matter.
        """


def make_model(spec: TrainSpec, xp: ModuleType = np) -> NoiseModel:
    """The model that ``spec.model`` names, its parameters living in the array module ``xp``."""
    batch, half = len(spec.weights), spec.grid.half_cells
    if spec.model == "increments":
        return Increments(batch, half, spec.seed, xp)
    if spec.model == "free":
        return Free(batch, half, spec.seed, xp)
    if spec.model == "sigmoid":
        from optnoise.sigmoid import make_sigmoid

        return make_sigmoid(spec, xp)
    if spec.model == "cnn":
        from optnoise.cnn import make_cnn

        return make_cnn(spec, xp)
    raise ValueError(f"model: {spec.model!r} is not allowed; choose one of {', '.join(MODELS)}")


def mirror(z: Any) -> tuple[Any, Any]:
    """(p, total): the mirrored, normalised masses (W, 2N) of half vectors ``z`` (W, N), and sum z, (W, 1).

    Raises ``ValueError`` for a host row whose sum is not positive and finite; on a device, where looking
    would cost a copy, such a row becomes NaN.
    """
    xp = array_namespace(z)
    total = z.sum(axis=-1, keepdims=True)
    if xp is np:
        bad = np.flatnonzero(~((total[:, 0] > 0) & np.isfinite(total[:, 0])))
        if bad.size:
            raise ValueError(
                f"noise: row {bad[0]} has total mass {total[bad[0], 0]}, which must be positive and finite"
            )
    half = z / (2.0 * total)
    return xp.concatenate([half, half[:, ::-1]], axis=-1), total


def mirror_pull_back(p: Any, total: Any, dp: Any) -> Any:
    """Gradient (W, N) with respect to z, from ``dp`` (W, 2N) and what :func:`mirror` returned.

    p is unchanged when z is scaled, so the gradient is orthogonal to z.
    """
    half = p.shape[-1] // 2
    folded = dp[:, :half] + dp[:, : half - 1 : -1]
    mean = (folded * p[:, :half]).sum(axis=-1, keepdims=True)
    return (folded - 2.0 * mean) / (2.0 * total)


def half_masses(p: Any, batch: int, half: int) -> Any:
    """The left half (W, N) of symmetric masses ``p``, shape (2N,) or (W, 2N), averaged with the right.

    Raises ``ValueError`` when the shape does not fit or a mass is negative or not finite.
    """
    xp = array_namespace(p)
    if p.shape[-1] != 2 * half or p.shape[:-1] not in ((), (batch,)):
        raise ValueError(f"p: shape {p.shape} is not allowed; it must be ({2 * half},) or ({batch}, {2 * half})")
    if not bool(xp.isfinite(p).all().item()) or bool((p < 0).any().item()):
        raise ValueError("p: negative or non-finite masses are not allowed")
    left, right = p[..., :half], p[..., : half - 1 : -1]
    return xp.broadcast_to(0.5 * (left + right), (batch, half))


def step_scales(price: Any) -> Any:
    """Roots of the heights (W, N) at which a step up towards the centre costs the same at every cell; mean square 1.

    A step at cell i adds its height to cells i..N, and so the sum of their ``price`` (W, N).
    """
    xp = array_namespace(price)
    height = 1.0 / xp.cumsum(price[:, ::-1], axis=-1)[:, ::-1]
    return xp.sqrt(height / height.mean(axis=-1, keepdims=True))


@dataclass(frozen=True)
class Increments:
    """z = cumsum(v) with v >= 0, one parameter for each cell of the half (P = N).

    The noise does not change when v is scaled; the start and :meth:`from_masses` have mean increment 1.
    """

    batch: int
    half: int
    seed: int
    xp: ModuleType

    def initial(self) -> Any:
        """Squares of uniform draws, as the sigmoid model's weights start: about a triangle."""
        v = np.random.default_rng(self.seed).uniform(size=self.half) ** 2
        return self.xp.asarray(np.tile(v * (self.half / v.sum()), (self.batch, 1)))

    def forward(self, params: Any) -> tuple[Any, Any]:
        """See :class:`NoiseModel`. Raises ``ValueError`` when all increments of a host row are zero."""
        p, total = mirror(array_namespace(params).cumsum(params, axis=-1))
        return p, (p, total)

    def pull_back(self, tape: Any, dp: Any) -> Any:
        """See :class:`NoiseModel`; dv_i = sum over i' >= i of dz_i'."""
        xp = array_namespace(dp)
        dz = mirror_pull_back(*tape, dp)
        return xp.cumsum(dz[:, ::-1], axis=-1)[:, ::-1]

    def bounds(self) -> tuple[Any, Any]:
        """v >= 0."""
        return self.xp.zeros(self.half), self.xp.full(self.half, np.inf)

    def from_masses(self, p: Any) -> Any:
        """Exact but for rounding. Raises ``ValueError`` where ``p`` falls towards the centre."""
        xp = array_namespace(p)
        z = half_masses(p, self.batch, self.half)
        v = xp.concatenate([z[:, :1], z[:, 1:] - z[:, :-1]], axis=-1)
        if bool((v < -1e-12 * z.max()).any().item()):
            raise ValueError("p: the masses fall towards the centre; the increments model is monotone")
        v = xp.maximum(v, 0.0)
        return v * (self.half / v.sum(axis=-1, keepdims=True))

    def scales(self, params: Any, price: Any) -> Any:
        """See :class:`NoiseModel`."""
        return step_scales(price)


@dataclass(frozen=True)
class Free:
    """z = exp(theta), one parameter for each cell of the half (P = N); theta + constant is the same noise."""

    batch: int
    half: int
    seed: int
    xp: ModuleType

    def initial(self) -> Any:
        """Uniform noise, each theta moved by a seeded normal draw of standard deviation 0.01."""
        theta = 0.01 * np.random.default_rng(self.seed).standard_normal(self.half)
        return self.xp.asarray(np.tile(theta, (self.batch, 1)))

    def forward(self, params: Any) -> tuple[Any, Any]:
        """See :class:`NoiseModel`."""
        z = array_namespace(params).exp(params - params.max(axis=-1, keepdims=True))
        p, total = mirror(z)
        return p, (p, total)

    def pull_back(self, tape: Any, dp: Any) -> Any:
        """See :class:`NoiseModel`; dtheta = z dz."""
        p, total = tape
        return 2.0 * total * p[:, : self.half] * mirror_pull_back(p, total, dp)

    def bounds(self) -> None:
        """Every real theta is allowed."""
        return None

    def from_masses(self, p: Any) -> Any:
        """Exact but for rounding; a mass of 0 becomes the least normal float64."""
        xp = array_namespace(p)
        theta = xp.log(xp.maximum(half_masses(p, self.batch, self.half), np.finfo(float).tiny))
        return theta - theta.max(axis=-1, keepdims=True)

    def scales(self, params: Any, price: Any) -> Any:
        """See :class:`NoiseModel`."""
        return array_namespace(params).ones_like(params)
