"""The convolutional model: its layers, and gradients of every block by complex step."""

import numpy as np
import pytest
from scipy.signal import correlate

from optnoise.noise import make_model
from optnoise.spec import TrainSpec


def spec_for(monotone, cells=24, weights=(0.1,), **more):
    return TrainSpec(half_width=4.0, cells=cells, model="cnn", monotone=monotone, weights=weights, **more)


def naive(model, row):
    """One network, layer by layer; holds for complex parameters too."""
    half, blocks, start = model.half, {}, 0
    for name, shape in model.shapes().items():
        size = int(np.prod(shape))
        blocks[name] = row[start : start + size].reshape(shape)
        start += size
    assert start == row.size
    hidden = blocks["dense_in"] @ ((np.arange(half) + 0.5) / half - 1.0) + blocks["bias_in"]
    for kernel, bias in zip(blocks["kernels"], blocks["bias_kernels"], strict=True):
        hidden = correlate(hidden, kernel.conj(), mode="same", method="direct") + bias
        hidden = np.where(hidden.real > 0, hidden, np.exp(hidden) - 1)
    y = blocks["dense_out"] @ hidden + blocks["bias_out"]
    z = np.cumsum(np.where(y.real > 0, y, 0)) if model.monotone else np.exp(y)
    return np.concatenate([z, z[::-1]]) / (2 * z.sum())


def random_rows(model, seed):
    rng = np.random.default_rng(seed)
    rows = model.initial()
    return rows + 0.2 * rng.standard_normal(rows.shape), rng


@pytest.mark.parametrize("monotone", [True, False])
def test_forward_is_the_networks(monotone):
    model = make_model(spec_for(monotone, weights=(0.1, 0.2)))
    rows, _ = random_rows(model, 1)
    p, _ = model.forward(rows)
    for row in range(2):
        assert p[row] == pytest.approx(naive(model, rows[row]), rel=1e-12)


@pytest.mark.parametrize("monotone", [True, False])
@pytest.mark.parametrize("cells", [8, 24])
def test_gradient_of_every_block_agrees_with_complex_step(monotone, cells):
    model = make_model(spec_for(monotone, cells=cells))
    rows, rng = random_rows(model, 2)
    weight = rng.standard_normal((1, cells))
    _, tape = model.forward(rows)
    gradient = model.pull_back(tape, weight)[0]
    start = 0
    for shape in model.shapes().values():
        size = int(np.prod(shape))
        for i in start + rng.choice(size, size=min(size, 20), replace=False):
            moved = rows[0] + 1e-30j * (np.arange(rows.shape[1]) == i)
            expected = (naive(model, moved) * weight[0]).sum().imag / 1e-30
            assert gradient[i] == pytest.approx(expected, rel=1e-10, abs=1e-15)
        start += size


def test_size_and_start():
    model = make_model(spec_for(True, cells=40))
    rows = model.initial()
    assert rows.shape == (1, 201 * 20 + 260)
    p, _ = model.forward(rows)
    assert (p > 0).all()


def test_monotone_decides_whether_masses_rise():
    for monotone in (True, False):
        model = make_model(spec_for(monotone, cells=64))
        rows, _ = random_rows(model, 3)
        p, _ = model.forward(rows)
        assert (np.diff(p[0, :32]) >= 0).all() == monotone


def test_a_monotone_network_without_output_is_refused():
    model = make_model(spec_for(True))
    with pytest.raises(ValueError, match="total mass 0"):
        model.forward(np.zeros_like(model.initial()))


def test_no_warm_start():
    with pytest.raises(NotImplementedError, match="no warm start"):
        make_model(spec_for(True)).from_masses(np.full(24, 1 / 24))
