"""Noise models on a real device: equal to the host's, and the same bytes every time."""

import numpy as np
import pytest

from optnoise import backend
from optnoise.noise import make_model
from optnoise.spec import MODELS, TrainSpec

PROBLEM = backend.device_problem()
pytestmark = pytest.mark.skipif(PROBLEM is not None, reason=str(PROBLEM))

# (half-width, cells, sigmoids): wide and narrow bands, a tail that underflows, fewer cells than sigmoids.
SIZES = [(5.0, 6000, 1000), (400.0, 60000, 10000), (50.0, 4000, 300), (5.0, 20, 64)]


def spec_for(model, half_width, cells, stacked, **more):
    return TrainSpec(half_width=half_width, cells=cells, model=model, stacked=stacked, weights=(0.1, 0.2, 0.3), **more)


def parameters(model, rng):
    """Rows near the start that differ, with places outside the grid, equal places and heights of 0."""
    rows = model.initial()
    rows = rows * rng.uniform(0.9, 1.1, size=rows.shape)
    if hasattr(model, "stacked"):
        rows[1, 1:10], rows[1, -9:] = 0.0, rows[1, -1]
        rows[2, 0], rows[2, -3:] = 0.0, (-3 * model.half_width, 2 * model.half_width, 0.1)
    return rows


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("half_width", "cells", "stacked"), SIZES)
def test_device_agrees_with_host(name, half_width, cells, stacked):
    import cupy

    if name == "cnn" and cells > 6000:
        pytest.skip("6 million parameters a noise: beyond what the convolutional model is for")
    spec = spec_for(name, half_width, cells, stacked, **({"slope": 5.0} if cells == 20 else {}))
    host, device = make_model(spec), make_model(spec, cupy)
    rng = np.random.default_rng(1)
    rows, weight = parameters(host, rng), rng.standard_normal((3, cells))
    p, tape = host.forward(rows)
    q, device_tape = device.forward(cupy.asarray(rows))
    assert isinstance(q, cupy.ndarray)
    assert q.get() == pytest.approx(p, rel=2e-13, abs=1e-290)
    gradient = host.pull_back(tape, weight)
    device_gradient = device.pull_back(device_tape, cupy.asarray(weight))
    scale = np.abs(gradient).max(axis=-1, keepdims=True)
    assert np.abs(device_gradient.get() - gradient).max() <= 1e-11 * scale.max()
    assert np.abs((device_gradient.get() - gradient) / scale).max() <= 1e-9


@pytest.mark.parametrize("name", ["sigmoid", "increments", "free"])
def test_equal_input_gives_equal_bytes(name):
    import cupy

    spec = spec_for(name, 5.0, 6000, 1000)
    model = make_model(spec, cupy)
    weight = cupy.asarray(np.random.default_rng(2).standard_normal((3, 6000)))
    results = set()
    for _ in range(5):
        p, tape = model.forward(model.initial())
        results.add((p.get().tobytes(), model.pull_back(tape, weight).get().tobytes()))
    assert len(results) == 1
