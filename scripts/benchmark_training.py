"""Time one training epoch, forward and backward, against dense autograd on the same machine: one table.

Every measurement runs in a process of its own, so that peak memory is its own too. Our epochs are those of
``optnoise.training.train`` with Adam: seconds(E epochs) - seconds(1 epoch), over E - 1. The peer is the paper's
formulation written out in PyTorch (the ``bench`` extra): the dense matrix sigma(C (x_i - F_j)), softmax of its
logarithm, privacy buckets composed by repeated squaring, gradients by autograd. Without PyTorch its columns
stay empty and ``reason`` says why.
"""

import argparse
import csv
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

CASE = ("method", "half_width", "cells", "stacked", "compositions")
RUN = ("backend", "batch", "threads", "seconds", "cpu_seconds", "peak_mib")
PEER = ("peer_threads", "peer_seconds", "peer_cpu_seconds", "peer_peak_mib", "ratio", "cpu_ratio")
COLUMNS = (*CASE, *RUN, *PEER, "batch_share", "core_ratio", "bandwidth_share", "reason")
EPSILON, WEIGHT, SLOPE = 0.3, 0.1, 500.0


def main(
    path_table: str,
    *,
    methods: list[str],
    half_widths: list[float],
    cells: int,
    stacked: int,
    compositions: int,
    batch: int,
    epochs: int,
    peer_epochs: int,
    peer_python: str,
) -> None:
    """Write ``path_table``, one row for each method, half-width, backend and batch size.

    ratio: the peer's seconds over ours, for one noise, ours on one core and the peer on all. cpu_ratio: the
    same with processor time, which a busy machine does not stretch. batch_share: seconds of a batch over
    ``batch`` single runs one after another. core_ratio: the device's throughput over one host core's.
    bandwidth_share: the least a batch's epoch must move in device memory over what a plain copy moves then.
    """
    from optnoise.backend import device_problem  # the peer's interpreter need not have this package

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    no_device = device_problem()
    rows = []
    for half_width in half_widths:
        for method in methods:
            case = {
                "method": method,
                "half_width": half_width,
                "cells": cells,
                "stacked": stacked,
                "compositions": compositions,
            }
            ours = {**case, "epochs": epochs}
            single = _measure(sys.executable, {**ours, "who": "numpy", "batch": 1}, threads=1)
            peer = _peer({**case, "epochs": peer_epochs}, peer_python, cores)
            row = {**case, **single, **peer, "backend": "numpy", "batch": 1, "threads": 1}
            row["ratio"] = _over(peer.get("peer_seconds"), single.get("seconds"))
            row["cpu_ratio"] = _over(peer.get("peer_cpu_seconds"), single.get("cpu_seconds"))
            many = _measure(sys.executable, {**ours, "who": "numpy", "batch": batch}, threads=cores)
            rows += [row, {**case, **many, "backend": "numpy", "batch": batch, "threads": cores}]
            rows[-1]["batch_share"] = _over(many.get("seconds"), batch * single.get("seconds", math.nan))
            for size in (1, batch):
                on_device = {**ours, "who": "cupy", "batch": size}
                device = {"reason": no_device} if no_device else _measure(sys.executable, on_device, threads=1)
                rows.append({**case, **device, "backend": "cupy", "batch": size, "threads": 1})
                rows[-1]["core_ratio"] = _over(size * single.get("seconds", math.nan), device.get("seconds"))
            for row in rows[-4:]:
                print({k: v for k, v in row.items() if v not in (None, "")}, file=sys.stderr, flush=True)
    path = Path(path_table)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    with unfinished.open("w", newline="") as stream:
        table = csv.DictWriter(stream, COLUMNS, restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    os.replace(unfinished, path)


def _over(first: float | None, second: float | None) -> float | str:
    return first / second if first and second and second > 0 else ""


def _measure(python: str, case: dict, *, threads: int) -> dict:
    """The case's figures from a fresh process, or the reason why there are none."""
    environment = dict(os.environ)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        environment[name] = str(threads)
    command = [python, __file__, "--case", json.dumps({**case, "threads": threads})]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        return {"reason": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]}
    return json.loads(done.stdout)


def _peer(case: dict, python: str, cores: int) -> dict:
    needed = 4 * 8 * case["cells"] // 2 * case["stacked"] / 2**20
    available = _available_mib()
    if available < needed:
        return {"reason": f"the dense peer needs about {needed:.0f} MiB and {available:.0f} are available"}
    found = _measure(python, {**case, "who": "peer"}, threads=cores)
    return {key if key == "reason" else f"peer_{key}": value for key, value in found.items()} | {"peer_threads": cores}


def _available_mib() -> float:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return math.inf
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("MemAvailable")), math.inf)


def _peak_mib() -> float:
    """Most resident memory of this process: of its own image, which getrusage does not tell apart."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)


def _ours(case: dict) -> dict:
    """Seconds per epoch of the package itself, the best of three."""
    from optnoise.spec import TrainSpec
    from optnoise.training import train

    def seconds(epochs: int) -> tuple[float, float]:
        spec = TrainSpec(
            half_width=case["half_width"],
            cells=case["cells"],
            method=case["method"],
            compositions=case["compositions"],
            stacked=case["stacked"],
            slope=SLOPE,
            epsilon=EPSILON,
            weights=(WEIGHT,) * case["batch"],
            optimiser="adam",
            epochs=epochs,
            early_stop=False,
        )
        began, processor = time.perf_counter(), time.process_time()
        train(spec, case["who"])
        return time.perf_counter() - began, time.process_time() - processor

    seconds(2)  # compile
    times = [(seconds(1), seconds(case["epochs"])) for _ in range(3)]
    best, processor = (min(end[k] - start[k] for start, end in times) / (case["epochs"] - 1) for k in (0, 1))
    found = {"seconds": best, "cpu_seconds": processor, "peak_mib": _peak_mib()}
    if case["who"] == "cupy":
        found["bandwidth_share"] = _least_bytes(case) / best / _copy_bandwidth()
    return found


def _least_bytes(case: dict) -> float:
    """Each array that an epoch must read or write in memory, once: parameters, moments, masses, gradients."""
    parameters, masses = 1 + 2 * case["stacked"], case["cells"]
    return 8.0 * case["batch"] * (8 * parameters + 12 * masses)


def _copy_bandwidth() -> float:
    """Bytes read and written per second by a device copy of 1 GiB."""
    import cupy

    source = cupy.ones(2**27)
    target = cupy.empty_like(source)
    times = []
    for _ in range(5):
        cupy.cuda.Device().synchronize()
        began = time.perf_counter()
        cupy.copyto(target, source)
        cupy.cuda.Device().synchronize()
        times.append(time.perf_counter() - began)
    return 2 * source.nbytes / min(times)


def _dense(case: dict) -> dict:
    """Seconds per epoch of the dense formulation under autograd: the best after one to warm up."""
    import torch

    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(case["threads"])
    torch.manual_seed(0)
    half, stacked, n = case["cells"] // 2, case["stacked"], case["compositions"]
    width = case["half_width"] / half
    x = (torch.arange(half) - half + 0.5) * width
    shift = torch.zeros(round(1 / width))
    cost = torch.cat([x, x.flip(0)]).abs()
    a = torch.tensor(10.0, requires_grad=True)
    b = torch.rand(stacked).requires_grad_()
    f = ((torch.arange(stacked) / stacked - 1) * case["half_width"]).requires_grad_()
    adam = torch.optim.Adam([a, b, f], lr=1e-3)
    step, count = 0.01, 500
    grid = torch.arange(-count, count + 1) * step

    def delta_by_buckets(p, q):
        shared = (p > 0) & (q > 0)
        mass, infinite = p[shared], p[~shared].sum()
        place = torch.log(mass / q[shared]) / step + count
        above = place > 2 * count
        infinite = infinite + mass[above].sum()
        place, mass = place[~above].clamp(min=0), mass[~above]
        lower = place.detach().floor().clamp(max=2 * count - 1)
        share = place - lower
        lower = lower.long()
        buckets = torch.zeros(2 * count + 1).index_add(0, lower, mass * (1 - share))
        buckets = buckets.index_add(0, lower + 1, mass * share)
        for _ in range(round(math.log2(n))):
            square = torch.fft.irfft(torch.fft.rfft(buckets, n=4 * count + 2) ** 2, n=4 * count + 2)
            infinite = 1 - (1 - infinite) ** 2 + square[3 * count + 1 : 4 * count + 1].sum()
            buckets = square[count : 3 * count + 1]
            below = torch.nn.functional.pad(square[:count].sum()[None], (0, 2 * count))
            buckets = buckets + below
        if case["method"] == "adp":
            return (buckets * (1 - torch.exp(EPSILON - grid)).clamp(min=0)).sum() + infinite
        return buckets[grid > EPSILON].sum() + infinite

    def delta_by_moments(p, q):
        shared = (p > 0) & (q > 0)
        loss, infinite = torch.log(p[shared] / q[shared]), p[~shared].sum()
        orders = torch.arange(1.0, 33.0)[:, None]
        moments = torch.logsumexp(torch.log(p[shared]) + orders * loss, dim=1)
        return torch.exp(n * moments - orders[:, 0] * EPSILON).min() + 1 - (1 - infinite) ** n

    def epoch():
        adam.zero_grad()
        z = a**2 + torch.sigmoid(SLOPE * (x[:, None] - f[None, :])) @ b**2
        side = torch.softmax(torch.log(z), dim=0) / 2
        noise = torch.cat([side, side.flip(0)])
        pair = torch.cat([noise, shift]), torch.cat([shift, noise])
        delta = delta_by_moments if case["method"] == "ma" else delta_by_buckets
        (WEIGHT * (noise * cost).sum() + delta(*pair)).backward()
        adam.step()

    times = []
    for _ in range(1 + case["epochs"]):
        began, processor = time.perf_counter(), time.process_time()
        epoch()
        times.append((time.perf_counter() - began, time.process_time() - processor))
    best, processor = (min(column) for column in zip(*times[1:], strict=True))
    return {"seconds": best, "cpu_seconds": processor, "peak_mib": _peak_mib()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--table", help="the CSV file to write")
    parser.add_argument("--methods", nargs="+", default=["adp", "pdp", "ma"], choices=["adp", "pdp", "ma"])
    parser.add_argument("--half-widths", nargs="+", type=float, default=[400.0, 5.0])
    parser.add_argument("--cells", type=int, default=60_000, help="2N")
    parser.add_argument("--stacked", type=int, default=10_000, help="K, sigmoids")
    parser.add_argument("--compositions", type=int, default=8, help="n, a power of two for the peer")
    parser.add_argument("--batch", type=int, default=15, help="utility weights in one batch")
    parser.add_argument("--epochs", type=int, default=40, help="of ours, timed")
    parser.add_argument("--peer-epochs", type=int, default=2, help="of the peer, timed after one to warm up")
    parser.add_argument("--peer-python", default=sys.executable, help="an interpreter with PyTorch")
    given = parser.parse_args()
    if given.case:
        case = json.loads(given.case)
        try:
            print(json.dumps(_dense(case) if case["who"] == "peer" else _ours(case)))
        except (ImportError, RuntimeError) as error:
            sys.exit(f"{type(error).__name__}: {error}")
    elif given.table:
        arguments = {k: v for k, v in vars(given).items() if k not in ("case", "table")}
        main(given.table, **arguments)
    else:
        parser.error("--table is required")
