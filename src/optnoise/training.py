"""Train noise: from a training spec to learned cell masses, with history, early stop and checkpoints.

The loss of one noise is w u(p) + delta(p): utility weight, utility loss and privacy loss. ``adam`` moves all utility
weights at once as a batch on either backend and copies nothing to the host but a thinned history. ``lbfgs``
takes one utility weight after another on the host, through stages: buckets are chosen afresh for every stage,
and the payoff's kink at epsilon, at which a quasi-Newton method stalls, is first rounded off and then
sharpened. See ``docs/training.md`` for what was measured.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from optnoise import backend as backends
from optnoise.baselines import truncated_gaussian
from optnoise.checkpoints import Checkpoint, Log, Progress
from optnoise.losses import LOSSES, PAYOFFS, Buckets, choose_buckets
from optnoise.memory import keep_freed_memory
from optnoise.noise import NoiseModel, make_model
from optnoise.optimisers import AdamState, adam_start, adam_step, lbfgs
from optnoise.pairs import in_order, pull_back, worst_case_pair
from optnoise.spec import TrainSpec
from optnoise.storage import versions

COLLAPSED = 0.9  # a delta above this protects nothing
HISTORY_POINTS = 200
REBUCKET_EPOCHS = 50
TOLERANCE = 1e-9
# Parameters without bounds change masses by factors and stall at the kinks of one release: smaller steps of the
# smoothing, 1-2-5 a decade, and a stop only when nothing moves. They end 0.1 % nearer to the linear program's optimum.
PATIENT_STAGES = (0.1, 0.05, 0.02, 0.01, 5e-3, 2e-3, 1e-3, 5e-4, 2e-4, 1e-4, 5e-5, 2e-5, 1e-5, 5e-6)
PATIENT_TOLERANCE = 1e-12
PATIENCE, ENOUGH = 20, 1e-5  # Adam stops when this many records improve the loss by less than this share
ADAM_ARRAYS = ("params", "first", "second", "alive")
FINER = 2  # times as many buckets in the last stage
FINEST = 8  # and for choosing among the stages


@dataclass(frozen=True)
class Trained:
    """Learned noises on one grid: centres x (2N,), masses p (W, 2N), utility weights (W,), and how they came about.

    history: ``epoch`` (T,), and ``loss``, ``delta`` (the training loss's own) and ``utility``, each (W, T).
    """

    x: np.ndarray
    p: np.ndarray
    weights: np.ndarray
    history: dict[str, np.ndarray] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation:
    """The loss of W noises and its gradient (W, P) in the parameters, with delta, utility (W,) and masses."""

    loss: Any
    gradient: Any
    delta: Any
    utility: Any
    p: Any


def train(
    spec: TrainSpec,
    backend: str = "auto",
    *,
    progress: Progress | None = None,
    checkpoint: str | os.PathLike | None = None,
    checkpoint_seconds: float = 60.0,
    threads: int | None = None,
) -> Trained:
    """Learn one noise for each utility weight of ``spec``.

    backend: ``auto``, ``numpy`` or ``cupy``; ``lbfgs`` computes on the host under ``auto``. progress: called
    now and then with (epoch, epochs, loss, delta), means over the weights. checkpoint: a file that is written,
    whole or not at all, every ``checkpoint_seconds``, and from which a run of the same spec goes on to exactly
    the result of an uninterrupted one; the caller removes it. threads: over which the weights are spread on the host;
    by default OMP_NUM_THREADS, else the processors that this process may use. The result does not depend on it.
    Raises ``ValueError`` for a bad argument and ``RuntimeError`` for ``cupy`` without a device.
    """
    xp = np if spec.optimiser == "lbfgs" and backend == "auto" else backends.resolve(backend)
    if spec.optimiser == "lbfgs" and xp is not np:
        raise ValueError(f"backend: {backend!r} is not allowed; lbfgs computes on the host, use numpy or auto")
    if xp is np:
        keep_freed_memory()
    log = Log(spec, progress, time.monotonic())
    saved = Checkpoint(spec, xp.__name__, checkpoint, checkpoint_seconds)
    run = _train_adam if spec.optimiser == "adam" else _train_lbfgs
    p, history, status, epochs = run(spec, xp, log, saved, threads or _threads())
    deltas = history["delta"][:, -1]
    finite = np.all(np.isfinite(p), axis=-1) & np.isfinite(history["loss"][:, -1])
    status = [
        "not finite" if one == "not finite" or not ok else "collapsed" if delta > COLLAPSED else one
        for ok, delta, one in zip(finite, deltas, status, strict=True)
    ]
    meta = {
        "spec": json.loads(spec.to_json()),
        "seed": spec.seed,
        "versions": versions(),
        "backend": xp.__name__,
        "status": status,
        "epochs": epochs,
    }
    return Trained(spec.grid.centres, p, np.asarray(spec.weights), history, meta)


def buckets_for(spec: TrainSpec, p: Any, *, smoothing: float = 0.0, finer: int = 1) -> Buckets | int:
    """Buckets of the spec's privacy loss that fit the noises ``p`` (W, 2N), ``finer`` times as many as it says."""
    if spec.method not in PAYOFFS:  # has no use for them
        return spec.buckets
    a, b = _pair(spec, p)
    return choose_buckets(
        a,
        b,
        epsilon=spec.epsilon,
        compositions=spec.compositions,
        buckets=spec.buckets,
        kind=spec.method,
        smoothing=smoothing,
        finer=finer,
    )


def evaluate(
    spec: TrainSpec,
    model: NoiseModel,
    cost: Any,
    params: Any,
    weights: Any,
    buckets: Buckets | int,
    smoothing: float = 0.0,
) -> Evaluation:
    """Loss and gradient at ``params`` (W, P); cost: the utility of a unit mass in each cell, (2N,)."""
    p, tape = model.forward(params)
    a, b = _pair(spec, p)
    settings = {"epsilon": spec.epsilon, "compositions": spec.compositions, "smoothing": smoothing}
    delta, da, db = LOSSES[spec.method](a, b, buckets=buckets, **settings)
    da, db = in_order(da, db, spec.order)
    dp = pull_back(da, db, spec.grid, pair=spec.pair, q=spec.q) + weights[:, None] * cost
    # A sum by row: a matrix product may add a batch up in another order than a single row.
    utility = (p * cost).sum(axis=-1)
    return Evaluation(weights * utility + delta, model.pull_back(tape, dp), delta, utility, p)


def _pair(spec: TrainSpec, p: Any) -> tuple[Any, Any]:
    return in_order(*worst_case_pair(p, spec.grid, pair=spec.pair, q=spec.q), spec.order)


def _threads() -> int:
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() and int(given) > 0 else len(os.sched_getaffinity(0))


# --- Adam ------------------------------------------------------------------------------------------------------------


def _train_adam(spec: TrainSpec, xp: ModuleType, log: Log, saved: Checkpoint, threads: int):
    """(masses, history, status by weight, epochs run)."""
    rows = len(spec.weights)
    parts = np.array_split(np.arange(rows), min(threads, rows) if xp is np else 1)
    batches = [_AdamBatch(replace(spec, weights=tuple(spec.weights[i] for i in part)), xp) for part in parts]
    every = max(1, math.ceil(spec.epochs / HISTORY_POINTS / REBUCKET_EPOCHS)) * REBUCKET_EPOCHS
    if spec.epochs <= HISTORY_POINTS * 5:
        every = max(1, math.ceil(spec.epochs / HISTORY_POINTS))
    records: list[np.ndarray] = []
    epoch, stopped = 0, False
    state = saved.load()
    if state is not None:
        epoch, stopped = int(state["epoch"]), bool(state["stopped"])
        records = list(state["records"])
        for batch, part in zip(batches, parts, strict=True):
            batch.restore(epoch, {name: xp.asarray(state[name][part]) for name in ADAM_ARRAYS})
    with ThreadPoolExecutor(len(batches)) as pool:
        while epoch < spec.epochs and not stopped:
            until = min(epoch + every, spec.epochs)
            list(pool.map(lambda batch, until=until: batch.advance(until), batches))
            epoch = until
            record = np.concatenate([batch.record() for batch in batches], axis=1)
            records.append(np.concatenate([np.full((1, rows), float(epoch)), record]))
            log.report(epoch, record[0], record[1])
            stopped = spec.early_stop and _has_converged(spec, epoch, np.array(records)[:, 1])
            # Buckets are chosen at multiples of their interval: a resumed run must choose them there too.
            if epoch % REBUCKET_EPOCHS == 0 or epoch == spec.epochs or stopped:
                saved.save(partial(_adam_arrays, batches, epoch, stopped, records))
    p = np.concatenate([batch.masses() for batch in batches])
    table = np.array(records)
    history = {"epoch": table[:, 0, 0].astype(int)}
    history |= {name: table[:, i].T.copy() for i, name in enumerate(("loss", "delta", "utility"), start=1)}
    alive = np.concatenate([backends.to_host(batch.state.alive) for batch in batches])
    status = [("converged" if stopped else "epochs") if one else "not finite" for one in alive]
    return p, history, status, [epoch] * rows


class _AdamBatch:
    """Some of the utility weights, trained together; nothing leaves the device between two records."""

    def __init__(self, spec: TrainSpec, xp: ModuleType) -> None:
        self.spec, self.xp = spec, xp
        self.model = make_model(spec, xp)
        self.bounds = self.model.bounds()
        self.cost = xp.asarray(spec.grid.cost(spec.loss))
        self.state = adam_start(start_params(spec, self.model, xp))
        self.last: Evaluation | None = None
        self.buckets: Buckets | None = None

    def restore(self, epoch: int, arrays: dict[str, Any]) -> None:
        self.state = AdamState(**arrays, epoch=epoch)

    def advance(self, until: int) -> None:
        spec, xp = self.spec, self.xp
        for epoch in range(self.state.epoch, until):
            if epoch % REBUCKET_EPOCHS == 0:
                self.buckets = buckets_for(spec, self.model.forward(self.state.params)[0])
            weights = xp.asarray(spec.weights_at(epoch))
            now = evaluate(spec, self.model, self.cost, self.state.params, weights, self.buckets)
            rate = spec.learning_rate * spec.learning_rate_factor**epoch
            self.state = adam_step(self.state, now.loss, now.gradient, learning_rate=rate, bounds=self.bounds)
            self.last = now

    def record(self) -> np.ndarray:
        """Loss, delta and utility of the latest epoch, (3, W), on the host."""
        return backends.to_host(self.xp.stack([self.last.loss, self.last.delta, self.last.utility]))

    def masses(self) -> np.ndarray:
        return backends.to_host(self.model.forward(self.state.params)[0])


def _adam_arrays(batches, epoch, stopped, records) -> dict[str, np.ndarray]:
    def joined(name):
        return np.concatenate([backends.to_host(getattr(batch.state, name)) for batch in batches])

    return {
        "epoch": np.asarray(epoch),
        "stopped": np.asarray(stopped),
        "records": np.array(records),
        **{name: joined(name) for name in ADAM_ARRAYS},
    }


def _has_converged(spec: TrainSpec, epoch: int, losses: np.ndarray) -> bool:
    """Whether no loss (records, W) fell noticeably over the last records; never while a utility weight decays."""
    if len(losses) < 2 * PATIENCE or not np.array_equal(spec.weights_at(epoch), spec.weights_at(epoch - 1)):
        return False
    recent, before = losses[-PATIENCE:].min(axis=0), losses[:-PATIENCE].min(axis=0)
    return bool(np.all((before - recent <= ENOUGH * np.abs(before)) | ~np.isfinite(losses[-1])))


# --- L-BFGS ----------------------------------------------------------------------------------------------------------


def _train_lbfgs(spec: TrainSpec, xp: ModuleType, log: Log, saved: Checkpoint, threads: int):
    """(masses, history, status by weight, iterations by weight); one utility weight per task."""
    rows = len(spec.weights)
    done = _Done(spec, rows, saved, log)
    starts = None if len(done.states) == rows else start_params(spec, make_model(spec), np)
    with ThreadPoolExecutor(min(threads, rows)) as pool:
        futures = [
            pool.submit(_lbfgs_row, replace(spec, weights=(w,)), row, starts, done)
            for row, w in enumerate(spec.weights)
        ]
        for future in futures:
            future.result()
    results = [done.states[row] for row in range(rows)]
    traces = [one["trace"] for one in results]
    epochs = np.unique(np.linspace(1, max(len(trace) for trace in traces), HISTORY_POINTS).astype(int))
    # A noise that is done stays as it is while others go on.
    thinned = np.array([trace[np.minimum(epochs, len(trace)) - 1] for trace in traces])
    history = {"epoch": epochs}
    history |= {name: thinned[:, :, i].copy() for i, name in enumerate(("loss", "delta", "utility"))}
    for row, one in enumerate(results):
        for name in ("loss", "delta", "utility"):
            history[name][row, -1] = one[name]
    p = np.concatenate([one["p"][None] for one in results])
    status = ["converged" if one["converged"] else "epochs" for one in results]
    return p, history, status, [int(one["iterations"]) for one in results]


def stages(spec: TrainSpec) -> tuple[float, ...]:
    """Smoothings of the payoff's kink, one for each stage of L-BFGS, sharpest last.

    Rounds other than the one looked at smooth the kink by themselves, so that many compositions need none.
    """
    if spec.method == "adp":
        if spec.compositions == 1:
            return (0.03, 0.003, 0.0003) if spec.model in ("sigmoid", "increments") else PATIENT_STAGES
        return (0.01, 0.001, 0.0) if spec.compositions <= 8 else (0.0, 0.0)
    if spec.method == "pdp":
        return (0.03, 0.01, 0.003, 0.001)
    if spec.method == "ma":  # the largest order of moments, inverse
        return (0.01, 0.001, 0.0001) if spec.compositions == 1 else (0.01, 0.0)
    return (0.0,)


def _lbfgs_row(spec: TrainSpec, row: int, starts: np.ndarray | None, done: _Done) -> None:
    """Train one noise through its stages, from wherever ``done`` has it, or else from its row of ``starts``.

    ``spec`` has one utility weight.
    """
    model = make_model(spec)
    state = done.states.get(row)
    if state is None:
        params = starts[row, None]
        state = {"stage": 0, "params": params[0], "trace": np.zeros((0, 3)), "iterations": 0, "converged": False}
        state |= _judge(spec, model, params)
    for stage in range(int(state["stage"]), len(stages(spec))):
        state = _lbfgs_stage(spec, model, state, stage, partial(done.report, row))
        done.finish(row, state)
    if model.bounds() is not None:
        done.states[row] = _cut(spec, model, state)


def _lbfgs_stage(
    spec: TrainSpec, model: NoiseModel, state: dict[str, Any], stage: int, report: Callable
) -> dict[str, Any]:
    """The state after one more stage: where to go on from, and the best noise so far by the loss itself."""
    cost = spec.grid.cost(spec.loss)
    weights = spec.final_weights
    squared = model.bounds() is not None  # a parameter that may not be negative is the square of a free one

    params = state["params"][None]
    # Cells far out cost most and hold least: unscaled, they alone would decide how far every step goes.
    worth = state["loss"] if 0 < state["loss"] < math.inf else 1.0
    price = 1.0 + weights[:, None] * cost[: spec.grid.half_cells] / worth
    scales = model.scales(params, price)[0]

    def params_of(point):
        return np.square(scales * point)[None] if squared else (scales * point)[None]

    if squared:  # what is exactly zero would stay so
        params = np.maximum(params, 1e-6 * params.mean(axis=-1, keepdims=True))
    smoothings = stages(spec)
    smoothing = smoothings[stage]
    finer = FINER if stage == len(smoothings) - 1 else 1
    buckets = buckets_for(spec, model.forward(params)[0], smoothing=smoothing, finer=finer)
    scale = 1.0 / max(abs(float(evaluate(spec, model, cost, params, weights, buckets, smoothing).loss[0])), 1e-300)
    trace: list[tuple[float, float, float]] = []
    latest: list[Evaluation] = []

    def function(point):
        try:
            now = evaluate(spec, model, cost, params_of(point), weights, buckets, smoothing)
        except ValueError:  # no mass is left
            return math.inf, np.zeros_like(point)
        latest[:] = [now]
        gradient = now.gradient[0] * scales * scale
        return float(now.loss[0]) * scale, 2.0 * (scales * point) * gradient if squared else gradient

    def callback():
        trace.append(tuple(float(values[0]) for values in (latest[0].loss, latest[0].delta, latest[0].utility)))
        report(state["iterations"] + len(trace), trace[-1])

    end = lbfgs(
        function,
        (np.sqrt(params[0]) if squared else params[0]) / scales,
        iterations=max(1, (spec.epochs - state["iterations"]) // (len(smoothings) - stage)),
        tolerance=(TOLERANCE if squared else PATIENT_TOLERANCE) if spec.early_stop else 0.0,
        callback=callback,
    )
    params = params_of(end.point)
    if squared:  # their common factor means nothing; it must not drift
        params = params * (params.size / params.sum())
    after = state | {
        "stage": stage + 1,
        "params": params[0],
        "iterations": state["iterations"] + end.iterations,
        "converged": end.converged,
    }
    outcome = _judge(spec, model, params)
    if outcome["loss"] < state["loss"] or not math.isfinite(state["loss"]):
        after |= outcome
    trace = trace or [(after["loss"], after["delta"], after["utility"])]
    return after | {"trace": np.concatenate([state["trace"], np.array(trace)])}


def _cut(spec: TrainSpec, model: NoiseModel, state: dict[str, Any]) -> dict[str, Any]:
    """The state with the outermost masses exactly zero, as many as do not raise the loss.

    The square of a free parameter comes near zero and never there, so that the range is learned up to this last step.
    """
    best, outside = state, np.cumsum(state["p"][: spec.grid.half_cells])
    params = model.from_masses(state["p"][None])
    for mass in 10.0 ** np.arange(-15, -1):  # each cut takes the one before with it
        params[0, : np.searchsorted(outside, mass)] = 0.0
        trial = _judge(spec, model, params)
        if trial["loss"] <= best["loss"]:
            best = state | trial
    return best


def _judge(spec: TrainSpec, model: NoiseModel, params: Any) -> dict[str, Any]:
    """One noise and its loss on fine buckets chosen for it, by which stages are compared."""
    p = model.forward(params)[0]
    buckets = buckets_for(spec, p, finer=FINEST)
    now = evaluate(spec, model, spec.grid.cost(spec.loss), params, spec.final_weights, buckets)
    return {"p": p[0]} | {name: float(getattr(now, name)[0]) for name in ("loss", "delta", "utility")}


def start_params(spec: TrainSpec, model: NoiseModel, xp: ModuleType) -> Any:
    """Parameters (W, P) to start from: the model's own, or the best truncated Gaussian for each utility weight."""
    if spec.start == "initial" or (spec.start == "auto" and (spec.optimiser == "adam" or spec.model == "cnn")):
        return model.initial()
    return model.from_masses(xp.asarray(best_gaussians(spec, spec.final_weights)))


def best_gaussians(spec: TrainSpec, weights: np.ndarray) -> np.ndarray:
    """For each utility weight the truncated Gaussian of least loss, (W, 2N)."""
    grid = spec.grid
    coarse = np.geomspace(grid.cell_width, 4 * grid.half_width, 40)
    losses = _gaussian_losses(spec, coarse)
    noises = []
    for weight in weights:
        # To a thousandth: a start that is second best costs what training hardly wins back.
        about = _least(coarse, weight, losses)
        sigmas = about * np.geomspace(0.9, 1 / 0.9, 7)
        noises.append(truncated_gaussian(grid, _least(sigmas, weight, _gaussian_losses(spec, sigmas))))
    return np.stack(noises)


def _least(sigmas: np.ndarray, weight: float, losses: tuple[np.ndarray, np.ndarray]) -> float:
    """The sigma of least weighted loss, read between ``sigmas`` on logarithmic axes."""
    from scipy.interpolate import PchipInterpolator

    place = np.log(sigmas)
    at = np.linspace(place[0], place[-1], 64 * len(sigmas))
    utility, privacy = (np.exp(PchipInterpolator(place, np.log(np.maximum(part, 1e-300)))(at)) for part in losses)
    return float(np.exp(at[np.argmin(weight * utility + privacy)]))


def _gaussian_losses(spec: TrainSpec, sigmas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Utility losses and privacy losses of truncated Gaussians, a few at a time for the memory's sake."""
    cost = spec.grid.cost(spec.loss)
    parts = []
    for some in np.array_split(sigmas, -(-len(sigmas) // 8)):
        p = np.stack([truncated_gaussian(spec.grid, float(sigma)) for sigma in some])
        a, b = _pair(spec, p)
        privacy = LOSSES[spec.method](
            a, b, epsilon=spec.epsilon, compositions=spec.compositions, buckets=buckets_for(spec, p)
        )[0]
        parts.append(((p * cost).sum(axis=-1), privacy))
    utility, privacy = zip(*parts, strict=True)
    return np.concatenate(utility), np.concatenate(privacy)


class _Done:
    """States of all utility weights at the end of their latest stages; shared by the threads."""

    def __init__(self, spec: TrainSpec, rows: int, saved: Checkpoint, log: Log) -> None:
        self.states: dict[int, dict[str, Any]] = {}
        self.latest = dict.fromkeys(range(rows), (0, math.nan, math.nan))
        self.saved, self.log, self.lock = saved, log, threading.Lock()
        arrays = saved.load()
        if arrays is not None:
            for name, array in arrays.items():
                row, _, key = name.partition("_")
                self.states.setdefault(int(row), {})[key] = array if array.ndim else array.item()

    def report(self, row: int, iteration: int, values: tuple[float, float, float]) -> None:
        self.latest[row] = (iteration, values[0], values[1])
        epochs, losses, deltas = zip(*list(self.latest.values()), strict=True)
        self.log.report(sum(epochs) // len(epochs), np.array(losses), np.array(deltas))

    def finish(self, row: int, state: dict[str, Any]) -> None:
        with self.lock:
            self.states[row] = state
            self.saved.save(self._arrays)

    def _arrays(self) -> dict[str, np.ndarray]:
        return {f"{row}_{key}": np.asarray(v) for row, state in self.states.items() for key, v in state.items()}
