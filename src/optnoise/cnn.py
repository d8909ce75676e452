"""The convolutional noise model (the paper's appendix B), with a backward pass written by hand.

The input is fixed: the left half's cell centres over the half-width, x_i / r in (-1, 0). A dense layer N -> 100,
ten one-channel convolutions over those 100 values (kernel 15, same padding, CELU after each) and a dense layer
100 -> N give y (N,). Not monotone: z = exp(y), so p is the softmax of the mirrored output. Monotone:
z = cumsum(relu(y)). Every layer has a bias. Each of the W noises has its own network.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from optnoise.backend import array_namespace
from optnoise.noise import mirror, mirror_pull_back
from optnoise.spec import TrainSpec

WIDTH = 100
LAYERS = 10
KERNEL = 15
PADDING = KERNEL // 2


@dataclass(frozen=True)
class Cnn:
    """Rows of parameters, in the order of :meth:`shapes`; P = 201 N + 260."""

    batch: int
    half: int
    seed: int
    monotone: bool
    input: Any  # (N,), in the module xp
    xp: ModuleType

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of each block of a row, in order."""
        return {
            "dense_in": (WIDTH, self.half),
            "bias_in": (WIDTH,),
            "kernels": (LAYERS, KERNEL),
            "bias_kernels": (LAYERS, 1),
            "dense_out": (self.half, WIDTH),
            "bias_out": (self.half,),
        }

    def _split(self, params: Any) -> dict[str, Any]:
        blocks, start = {}, 0
        for name, shape in self.shapes().items():
            stop = start + int(np.prod(shape))
            blocks[name] = params[:, start:stop].reshape(params.shape[0], *shape)
            start = stop
        return blocks

    def initial(self) -> Any:
        """Each layer uniform on +-1/sqrt(its inputs), the usual start of such layers.

        Monotone: 1 is added to the last bias, so that no output starts below 0, where its gradient is 0.
        """
        rng = np.random.default_rng(self.seed)
        inputs = {"in": self.half, "kernels": KERNEL, "out": WIDTH}
        blocks = []
        for name, shape in self.shapes().items():
            block = rng.uniform(-1.0, 1.0, size=shape) / np.sqrt(inputs[name.split("_")[-1]])
            blocks.append(block + 1.0 if self.monotone and name == "bias_out" else block)
        row = np.concatenate([block.reshape(-1) for block in blocks])
        return self.xp.asarray(np.tile(row, (self.batch, 1)))

    def forward(self, params: Any) -> tuple[Any, Any]:
        """See :class:`optnoise.noise.NoiseModel`.

        Raises ``ValueError`` for a monotone host row in which every output is 0 or less.
        """
        xp = array_namespace(params)
        blocks = self._split(params)
        hidden = blocks["dense_in"] @ self.input + blocks["bias_in"]
        layers = []
        for layer in range(LAYERS):
            padded = _pad(hidden)
            before = _correlate(padded, blocks["kernels"][:, layer]) + blocks["bias_kernels"][:, layer]
            layers.append((padded, before))
            hidden = _celu(before)
        y = (blocks["dense_out"] @ hidden[:, :, None])[:, :, 0] + blocks["bias_out"]
        softmax = not self.monotone
        z = xp.exp(y - y.max(axis=-1, keepdims=True)) if softmax else xp.cumsum(xp.maximum(y, 0.0), axis=-1)
        p, total = mirror(z)
        return p, (blocks, layers, hidden, y, p, total)

    def pull_back(self, tape: Any, dp: Any) -> Any:
        """See :class:`optnoise.noise.NoiseModel`."""
        xp = array_namespace(dp)
        blocks, layers, hidden, y, p, total = tape
        dz = mirror_pull_back(p, total, dp)
        if self.monotone:
            dy = xp.where(y > 0, xp.cumsum(dz[:, ::-1], axis=-1)[:, ::-1], 0.0)
        else:
            dy = 2.0 * total * p[:, : self.half] * dz
        gradient = {"dense_out": dy[:, :, None] * hidden[:, None, :], "bias_out": dy}
        dhidden = (dy[:, None, :] @ blocks["dense_out"])[:, 0]
        dkernels, dbiases = [], []
        for layer in reversed(range(LAYERS)):
            padded, before = layers[layer]
            dbefore = dhidden * xp.exp(xp.minimum(before, 0.0))
            taps = [padded[:, t : t + WIDTH] * dbefore for t in range(KERNEL)]
            dkernels.insert(0, xp.stack(taps, axis=-1).sum(axis=1))
            dbiases.insert(0, dbefore.sum(axis=-1, keepdims=True))
            # The transpose of a correlation with same padding: correlate with the kernel turned round.
            dhidden = _correlate(_pad(dbefore), blocks["kernels"][:, layer, ::-1])
        gradient["kernels"] = xp.stack(dkernels, axis=1)
        gradient["bias_kernels"] = xp.stack(dbiases, axis=1)
        gradient["bias_in"] = dhidden
        gradient["dense_in"] = dhidden[:, :, None] * self.input
        return xp.concatenate([gradient[name].reshape(len(dp), -1) for name in self.shapes()], axis=-1)

    def bounds(self) -> None:
        """Every real parameter is allowed."""
        return None

    def from_masses(self, p: Any) -> NoReturn:
        """Not offered: no closed form leads from masses to the layers."""
        raise NotImplementedError("the cnn model has no warm start from masses")

    def scales(self, params: Any, price: Any) -> Any:
        """See :class:`optnoise.noise.NoiseModel`."""
        return array_namespace(params).ones_like(params)


def _pad(values: Any) -> Any:
    """(W, 100) -> (W, 114): zeros on both sides."""
    xp = array_namespace(values)
    zeros = xp.zeros((values.shape[0], PADDING))
    return xp.concatenate([zeros, values, zeros], axis=-1)


def _correlate(padded: Any, kernel: Any) -> Any:
    """sum_t kernel_t padded_(i + t), shape (W, 100), for rows (W, 114) and (W, 15)."""
    total = padded[:, :WIDTH] * kernel[:, :1]
    for t in range(1, KERNEL):
        total = total + padded[:, t : t + WIDTH] * kernel[:, t : t + 1]
    return total


def _celu(values: Any) -> Any:
    """max(0, x) + min(0, e^x - 1)."""
    xp = array_namespace(values)
    return xp.maximum(values, 0.0) + xp.expm1(xp.minimum(values, 0.0))


def make_cnn(spec: TrainSpec, xp: ModuleType = np) -> Cnn:
    """The convolutional model of a training spec, its fixed input in the array module ``xp``."""
    grid = spec.grid
    values = xp.asarray(grid.centres[: grid.half_cells] / spec.half_width)
    return Cnn(len(spec.weights), grid.half_cells, spec.seed, spec.monotone, values, xp)
