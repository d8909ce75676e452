"""Training on a CUDA device: the same noise as on the host, the same bits each time, one batch of fifteen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optnoise import backend, training
from optnoise.spec import TrainSpec
from optnoise.training import train

pytestmark = pytest.mark.skipif(backend.device_problem() is not None, reason=str(backend.device_problem()))

SPEC = TrainSpec(
    half_width=20.0,
    cells=800,
    weights=(0.1, 0.02),
    optimiser="adam",
    epochs=100,
    compositions=8,
    stacked=100,
    buckets=201,
)


@pytest.mark.parametrize("model", ["increments", "sigmoid"])
@pytest.mark.parametrize("method", ["adp", "pdp", "ma"])
def test_device_and_host_agree(method, model):
    spec = replace(SPEC, method=method, model=model)
    on_device, on_host = train(spec, "cupy"), train(spec, "numpy")
    assert on_device.p == pytest.approx(on_host.p, rel=1e-6, abs=1e-12)
    assert on_device.meta["backend"] == "cupy"


def test_same_bytes_each_time_and_after_a_restart(tmp_path, monkeypatch):
    whole = train(SPEC, "cupy")
    assert train(SPEC, "cupy").p.tobytes() == whole.p.tobytes()
    path = tmp_path / "run.checkpoint"
    save = training.Checkpoint.save

    def save_then_die(self, arrays):
        save(self, arrays)
        raise KeyboardInterrupt

    monkeypatch.setattr(training.Checkpoint, "save", save_then_die)
    with pytest.raises(KeyboardInterrupt):
        train(SPEC, "cupy", checkpoint=path, checkpoint_seconds=0.0)
    monkeypatch.setattr(training.Checkpoint, "save", save)
    assert train(SPEC, "cupy", checkpoint=path).p.tobytes() == whole.p.tobytes()


def test_paper_size_batch_of_fifteen_stays_finite():
    weights = (0.001, 0.003, 0.005, 0.008, 0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.3, 1.5, 1.8, 2.0)
    spec = TrainSpec(
        half_width=400.0, cells=60000, weights=weights, optimiser="adam", epochs=60, compositions=128, stacked=10000
    )
    trained = train(spec, "cupy")
    assert trained.p.shape == (15, 60000) and np.isfinite(trained.history["loss"]).all()
