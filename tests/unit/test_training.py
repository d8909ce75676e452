"""Training: convergence against known optima, restarts, batches, named failures, both backends' code paths."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sparse
from device import device_stand_in
from scipy.optimize import linprog

from optnoise import certificates, training
from optnoise.accounting import delta_bounds
from optnoise.baselines import truncated_gaussian
from optnoise.losses import LOSSES
from optnoise.noise import make_model
from optnoise.pairs import additive_pair
from optnoise.spec import TrainSpec
from optnoise.storage import NoiseFile, save_noise
from optnoise.training import train

SMALL = TrainSpec(
    half_width=10.0, cells=100, model="increments", weights=(0.1, 0.02), epochs=60, compositions=3, buckets=201
)
ADAM = replace(SMALL, optimiser="adam", epochs=300, learning_rate=0.02)


def delta_of(spec: TrainSpec, p: np.ndarray) -> float:
    """The spec's privacy loss on fine buckets: an upper bound within about 1e-5 of itself."""
    a, b = training._pair(spec, p[None])
    return float(LOSSES[spec.method](a, b, epsilon=spec.epsilon, compositions=spec.compositions, buckets=4001)[0][0])


def gaussian_of_utility(spec: TrainSpec, utility: float) -> np.ndarray:
    cost = spec.grid.cost(spec.loss)
    low, high = 1e-2, 10 * spec.half_width
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if truncated_gaussian(spec.grid, middle) @ cost < utility else (low, middle)
    return truncated_gaussian(spec.grid, low)


def linear_program(spec: TrainSpec) -> float:
    """The least w u + delta of all symmetric monotone noises for one round."""
    grid, weight = spec.grid, spec.weights[0]
    half, shift = grid.half_cells, grid.shift
    rise = sparse.csr_matrix(np.tril(np.ones((half, half))))
    mirror = sparse.vstack([sparse.identity(half), sparse.csr_matrix(np.eye(half)[::-1])])
    noise = sparse.csr_matrix(mirror @ rise)
    nothing = sparse.csr_matrix((shift, half))
    a, b = sparse.vstack([noise, nothing]), sparse.vstack([nothing, noise])
    outcomes = grid.cells + shift
    return linprog(
        np.concatenate([weight * (noise.T @ grid.cost(spec.loss)), np.ones(outcomes)]),
        A_ub=sparse.hstack([a - math.exp(spec.epsilon) * b, -sparse.identity(outcomes)]).tocsr(),
        b_ub=np.zeros(outcomes),
        A_eq=sparse.csr_matrix(np.concatenate([np.asarray(noise.sum(0)).ravel(), np.zeros(outcomes)])[None]),
        b_eq=[1.0],
        bounds=(0, None),
        method="highs",
    ).fun


@pytest.mark.parametrize(("loss", "weight"), [("l1", 0.3), ("l1", 0.05), ("l1", 0.01), ("l2", 0.01)])
def test_one_round_reaches_the_linear_program(loss, weight):
    spec = TrainSpec(half_width=15.0, cells=300, model="increments", loss=loss, weights=(weight,), epochs=1500)
    trained = train(spec)
    best = linear_program(spec)
    assert best * (1 - 1e-9) <= trained.history["loss"][0, -1] <= best * 1.005


@pytest.mark.parametrize(("half_width", "iterations", "most"), [(20.0, 2000, 1.005), (400.0, 300, 1.015)])
@pytest.mark.parametrize("loss", ["l1", "l2"])
def test_width_at_equal_delta_is_near_the_least_over_the_frontier(loss, half_width, iterations, most):
    """E|x| or the root of E x^2 beside the certified linear program; ranges far wider than the noise needs too."""
    weights = (0.002, 0.01, 0.05, 0.2, 0.5)
    spec = TrainSpec(
        half_width=half_width, cells=int(10 * half_width), model="increments", loss=loss, weights=weights,
        epochs=iterations,
    )  # fmt: skip
    for p in train(spec).p:
        delta = delta_bounds(*additive_pair(p, spec.grid), spec.epsilon, 1).upper
        least = certificates.linear_program(spec.grid, loss=loss, epsilon=spec.epsilon, delta=float(delta)).utility
        assert 1 - 1e-6 <= (p @ spec.grid.cost(loss) / least) ** (1 if loss == "l1" else 0.5) <= most


@pytest.mark.parametrize("model", ["increments", "sigmoid"])
@pytest.mark.parametrize(
    ("compositions", "loss", "weight", "half_width"),
    [
        (1, "l1", 0.05, 20.0),
        (2, "l1", 0.02, 30.0),
        (4, "l1", 0.002, 60.0),
        (16, "l1", 5e-4, 150.0),
        (128, "l1", 1e-3, 200.0),
        (1, "l2", 0.002, 20.0),
        (8, "l2", 1e-4, 150.0),
        (128, "l2", 2e-5, 250.0),
    ],
)
def test_no_worse_than_a_gaussian_of_the_same_utility(model, compositions, loss, weight, half_width):
    cells = int(half_width) * 10
    spec = TrainSpec(
        half_width=half_width,
        cells=cells,
        model=model,
        loss=loss,
        weights=(weight,),
        compositions=compositions,
        stacked=cells // 2,
        epochs=150,
        buckets=501,
    )
    trained = train(spec)
    gaussian = gaussian_of_utility(spec, float(trained.history["utility"][0, -1]))
    assert trained.meta["status"][0] in ("converged", "epochs")
    assert delta_of(spec, trained.p[0]) <= delta_of(spec, gaussian) * (1 + 2e-5)


@pytest.mark.parametrize("method", ["adp", "pdp", "ma"])
@pytest.mark.parametrize("order", ["A/B", "B/A"])
@pytest.mark.parametrize("model", ["increments", "free", "sigmoid"])
def test_gradient_of_the_whole_loss(method, order, model):
    spec = replace(
        SMALL, model=model, method=method, pair="subsampled", q=0.3, order=order, stacked=20, slope=2.0, weights=(0.1,)
    )
    noise = make_model(spec)
    cost, weights = spec.grid.cost("l1"), np.array([0.1])
    params = noise.initial()
    buckets = training.buckets_for(spec, noise.forward(params)[0])
    now = training.evaluate(spec, noise, cost, params, weights, buckets)
    rng = np.random.default_rng(0)
    for _ in range(3):
        move = rng.standard_normal(params.shape) * np.abs(params)
        up, down = (
            training.evaluate(spec, noise, cost, params + s * move, weights, buckets).loss for s in (1e-6, -1e-6)
        )
        assert (now.gradient * move).sum() == pytest.approx((up - down)[0] / 2e-6, rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("spec", [SMALL, ADAM], ids=["lbfgs", "adam"])
def test_same_file_each_time_and_on_any_number_of_threads(spec, tmp_path):
    for threads in (1, 2):
        one = train(spec, threads=threads)
        save_noise(tmp_path / f"{threads}.npz", NoiseFile(one.x, one.p, one.weights, one.history, one.meta))
    assert (tmp_path / "1.npz").read_bytes() == (tmp_path / "2.npz").read_bytes()


@pytest.mark.parametrize("spec", [SMALL, ADAM], ids=["lbfgs", "adam"])
def test_batch_equals_single_runs(spec):
    together = train(replace(spec, early_stop=False))
    for row, weight in enumerate(spec.weights):
        alone = train(replace(spec, weights=(weight,), early_stop=False))
        assert together.p[row] == pytest.approx(alone.p[0], rel=1e-12, abs=1e-300)


class Killed(Exception):
    """Stands in for a signal in the middle of training."""


@pytest.mark.parametrize("spec", [SMALL, ADAM], ids=["lbfgs", "adam"])
@pytest.mark.parametrize("after", [1, 5])
def test_resumed_run_equals_an_uninterrupted_one(spec, after, tmp_path, monkeypatch):
    whole = train(spec)
    path = tmp_path / "run.checkpoint"
    saves = []
    save = training.Checkpoint.save

    def save_then_die(self, arrays):
        save(self, arrays)
        saves.append(path.exists())
        if len(saves) == after:
            raise Killed

    monkeypatch.setattr(training.Checkpoint, "save", save_then_die)
    with pytest.raises(Killed):
        train(spec, checkpoint=path, checkpoint_seconds=0.0, threads=1)
    monkeypatch.setattr(training.Checkpoint, "save", save)
    assert saves[-1] and [file.name for file in tmp_path.iterdir()] == ["run.checkpoint"]

    starts = []
    start_params = training.start_params
    monkeypatch.setattr(training, "start_params", lambda *args: starts.append(1) or start_params(*args))
    resumed = train(spec, checkpoint=path, checkpoint_seconds=0.0, threads=2)
    assert resumed.p.tobytes() == whole.p.tobytes()
    assert all(np.array_equal(resumed.history[name], whole.history[name]) for name in whole.history)
    assert resumed.meta["epochs"] == whole.meta["epochs"] and resumed.meta["status"] == whole.meta["status"]
    if spec.optimiser == "lbfgs":
        assert len(starts) < 2  # the finished weight was not trained again


def test_no_checkpoint_before_its_time(tmp_path):
    train(SMALL, checkpoint=tmp_path / "run.checkpoint", checkpoint_seconds=3600.0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["other spec", "cut short", "no archive"])
def test_useless_checkpoint_is_ignored_with_a_line(damage, tmp_path, capsys):
    path = tmp_path / "run.checkpoint"
    train(replace(SMALL, seed=5) if damage == "other spec" else SMALL, checkpoint=path, checkpoint_seconds=0.0)
    if damage == "cut short":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "no archive":
        path.write_bytes(b"nothing")
    trained = train(SMALL, checkpoint=path, checkpoint_seconds=3600.0)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and "checkpoint ignored" in lines[0] and str(path) in lines[0]
    assert trained.p.tobytes() == train(SMALL).p.tobytes()


def test_collapse_is_named():
    spec = replace(SMALL, weights=(50.0, 0.02), compositions=128)
    trained = train(spec)
    assert trained.meta["status"][0] == "collapsed" and trained.history["delta"][0, -1] > 0.9
    assert trained.meta["status"][1] != "not finite"


def test_the_paper_s_start_does_not_overflow():
    """MA at n = 128 on a narrow range starts far from any protection; it must move, and stay finite."""
    spec = TrainSpec(
        half_width=15.0,
        cells=1200,
        method="ma",
        compositions=128,
        stacked=300,
        weights=(0.1,),
        optimiser="adam",
        epochs=300,
    )
    trained = train(spec)
    losses = trained.history["loss"][0]
    assert np.isfinite(losses).all() and losses[0] < 10 and losses[-1] < losses[0]
    assert trained.meta["status"] == ["collapsed"]


def test_leaving_the_finite_range_is_named(monkeypatch):
    calls = []

    def fragile(a, b, **settings):
        value, da, db = LOSSES["adp"](a, b, **settings)
        calls.append(1)
        if len(calls) > 10:
            value, da = value.copy(), da.copy()
            value[0], da[0] = np.nan, np.nan
        return value, da, db

    monkeypatch.setattr(training, "LOSSES", {"adp": fragile})
    trained = train(replace(ADAM, epochs=30), threads=1)
    assert trained.meta["status"] == ["not finite", "epochs"]
    assert np.isfinite(trained.p).all()


def test_early_stop_and_its_absence():
    spec = replace(ADAM, epochs=20000, weights=(0.1,), learning_rate_factor=0.999)
    trained = train(spec)
    assert trained.meta["status"] == ["converged"] and trained.meta["epochs"][0] < 20000
    short = replace(spec, epochs=100, early_stop=False)
    assert train(short).meta["epochs"] == [100]


def test_history_and_meta():
    for spec in (SMALL, ADAM):
        trained = train(spec)
        points = trained.history["epoch"]
        assert np.all(np.diff(points) > 0) and len(points) <= 210
        for name in ("loss", "delta", "utility"):
            assert trained.history[name].shape == (2, len(points))
        utility = (trained.p * spec.grid.cost("l1")).sum(axis=1)
        assert trained.history["utility"][:, -1] == pytest.approx(utility, rel=1e-2)
        assert trained.p.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
        assert TrainSpec.from_json(json.dumps(trained.meta["spec"])) == spec
        json.dumps(trained.meta, allow_nan=False)


def test_progress_is_reported():
    seen = []
    train(replace(ADAM, epochs=100), progress=lambda *values: seen.append(values))
    assert seen[-1][:2] == (100, 100) and all(math.isfinite(v) for v in seen[-1][2:])


def test_weights_decay():
    spec = replace(SMALL, decay_half_life=10.0, minimum_weight=0.01)
    assert spec.weights_at(0) == pytest.approx(spec.weights)
    assert spec.weights_at(20) == pytest.approx([0.025, 0.01])
    assert SMALL.weights_at(1000) == pytest.approx(SMALL.weights)
    assert replace(spec, decay_epochs=20).final_weights == pytest.approx([0.025, 0.01])
    decayed = train(replace(spec, decay_epochs=20, minimum_weight=0.0, weights=(0.1,)))
    assert decayed.p.tobytes() == train(replace(SMALL, weights=(0.025,))).p.tobytes()


def test_starts():
    gaussian = train(replace(SMALL, epochs=1))
    initial = train(replace(SMALL, epochs=1, start="initial"))
    assert np.all(gaussian.history["loss"][:, -1] < initial.history["loss"][:, -1])
    far = train(replace(SMALL, epochs=400, start="initial"))
    near = train(replace(SMALL, epochs=400))
    assert far.history["loss"][:, -1] == pytest.approx(near.history["loss"][:, -1], rel=5e-3)


@pytest.mark.parametrize("compositions", [1, 4])
def test_the_range_is_learned_up_to_exact_zeros(compositions):
    spec = replace(SMALL, half_width=40.0, cells=400, compositions=compositions, epochs=200, weights=(0.1,))
    p = train(spec).p[0]
    least = np.flatnonzero(p)[0]
    assert 20 < least < 190 and np.all(p[:least] == 0) and np.all(p[-least:] == 0)
    # no cell more is worth keeping: the same noise without the cut is not better
    wide = np.maximum(p, p[p > 0].min() * 1e-6)
    assert delta_of(spec, p) <= delta_of(spec, wide / wide.sum()) * (1 + 1e-6)


def test_adam_runs_without_host_copies(monkeypatch):
    """On a stand-in for a device, where any hidden copy or mixing of memories is an error."""
    module = device_stand_in()
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setattr(training.backends, "resolve", lambda name: module)
    spec = replace(ADAM, epochs=50)
    for method in ("adp", "pdp", "ma"):
        on_device = train(replace(spec, method=method), "cupy")
        monkeypatch.setattr(training.backends, "resolve", lambda name: np)
        on_host = train(replace(spec, method=method), "numpy")
        monkeypatch.setattr(training.backends, "resolve", lambda name: module)
        assert on_device.p == pytest.approx(on_host.p, rel=1e-6)
        assert on_device.meta["backend"] == "cupy"


def test_bad_arguments():
    with pytest.raises(ValueError, match="backend: 'torch' is not allowed"):
        train(SMALL, "torch")
    with pytest.raises(ValueError, match="start: 'random' is not allowed"):
        replace(SMALL, start="random")


def test_towers_come_near_the_linear_programs_optimum():
    """Free masses at r = 5: narrower than any noise that falls from the centre can be at their delta."""
    spec = TrainSpec(half_width=5, cells=1000, model="free", monotone=False, weights=(0.0325,), epochs=3000)
    p = train(spec).p[0]
    a, b = additive_pair(p, spec.grid)
    utility, delta = float(p @ spec.grid.cost("l1")), float(np.maximum(a - np.exp(0.3) * b, 0.0).sum())
    settings = {"loss": "l1", "epsilon": 0.3, "delta": delta}
    assert utility < 1.003 * certificates.linear_program(spec.grid, monotone=False, **settings).utility
    assert utility < 0.99 * certificates.linear_program(spec.grid, **settings).utility
