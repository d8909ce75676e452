"""Bound delta with our accountant and with dp-accounting and prv-accountant, on the same pairs: one table.

Every measurement runs in a process of its own, on one thread, so that its peak memory is its own too (less
what the interpreter and the imports hold). Peers are optional (the ``bench`` extra): without one its rows
say why. Where a peer wants a resolution it gets the finest of the usual ones: dp-accounting a discretisation of
1e-5, prv-accountant errors of 1e-3 in epsilon and 1e-10 in delta.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

METHODS = ("optnoise", "dp-accounting", "prv-accountant")
COLUMNS = (
    "method", "pair", "q", "order", "half_width", "cells", "sigma", "n", "epsilon",
    "delta_lower", "delta_upper", "relative_width", "cpu_seconds", "cpu_compose_seconds", "peak_mib",
    "valid", "reason",
)  # fmt: skip
NOT_INSTALLED = "not installed"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main(
    path_table: str,
    *,
    compositions: list[int],
    half_width: float,
    cells: int,
    sigma: float,
    sampling_rate: float,
    epsilon: float,
    buckets: int,
    timeout: float,
    peer_python: str,
) -> None:
    """Write ``path_table``, one row for each pair, n and accountant.

    cpu_seconds: processor time from the masses to both bounds. cpu_compose_seconds: the part after a peer has made
    its own privacy loss distribution from them. valid: whether the interval meets ours. ``peer_python`` is an
    interpreter that has the peers; one measurement takes at most ``timeout`` seconds.
    """
    import numpy as np

    from optnoise.baselines import truncated_gaussian
    from optnoise.grid import Grid
    from optnoise.pairs import in_order, worst_case_pair

    grid = Grid(half_width, cells)
    p = truncated_gaussian(grid, sigma)
    cases = [("additive", None, "A/B"), *[("subsampled", sampling_rate, order) for order in ("A/B", "B/A")]]
    rows, missing = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for pair, q, order in cases:
            a, b = in_order(*worst_case_pair(p, grid, pair=pair, q=q), order)
            path_pair = str(Path(folder) / "pair.npz")
            np.savez(path_pair, a=a, b=b)
            for n in compositions:
                ours = None
                for method in METHODS:
                    task = {"method": method, "path": path_pair, "n": n, "epsilon": epsilon, "buckets": buckets}
                    python = sys.executable if method == "optnoise" else peer_python
                    result = missing.get(method) or _in_own_process(python, task, timeout)
                    if result.get("reason", "").startswith(NOT_INSTALLED):
                        missing[method] = result
                    ours = ours or result
                    row = {
                        "method": method, "pair": pair, "q": q, "order": order, "half_width": half_width,
                        "cells": cells, "sigma": sigma, "n": n, "epsilon": epsilon, **result,
                    }  # fmt: skip
                    if "delta_upper" in result:
                        lower, upper = result["delta_lower"], result["delta_upper"]
                        row["relative_width"] = (upper - lower) / upper if upper else 0.0
                        row["valid"] = lower <= ours["delta_upper"] and upper >= ours["delta_lower"] and lower <= upper
                    rows.append(row)
                    print(*(f"{row.get(name, '')}" for name in COLUMNS), file=sys.stderr)
    Path(path_table).parent.mkdir(parents=True, exist_ok=True)
    partial = Path(f"{path_table}.partial")
    with open(partial, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(partial, path_table)


def _in_own_process(python: str, task: dict, timeout: float) -> dict:
    """What the worker prints, or the reason why there is nothing."""
    command = [python, __file__, "--task", json.dumps(task)]
    environment = {**os.environ, **dict.fromkeys(THREADS, "1")}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"reason": f"took more than {timeout:g} s"}
    except OSError as error:
        return {"reason": str(error)}
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        return {"reason": lines[-1] if lines else f"exit status {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def _measure(task: dict) -> dict:
    """Run one accountant in this process."""
    import numpy as np

    try:
        accountant = {"optnoise": _optnoise, "dp-accounting": _dp_accounting, "prv-accountant": _prv_accountant}[
            task["method"]
        ]()
    except ImportError as error:
        return {"reason": f"{NOT_INSTALLED} ({error})"}
    with np.load(task["path"]) as pair:
        a, b = pair["a"], pair["b"]
    before, start = _peak_mib(), time.process_time()
    lower, upper, prepared = accountant(a, b, task["epsilon"], task["n"], task["buckets"])
    end = time.process_time()
    return {
        "delta_lower": float(lower),
        "delta_upper": float(upper),
        "cpu_seconds": end - start,
        "cpu_compose_seconds": end - (prepared or start),
        "peak_mib": _peak_mib() - before,
    }


def _peak_mib() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def _optnoise():
    import scipy.fft  # noqa: F401  (so that the import is not timed)

    from optnoise.accounting import delta_bounds

    def bound(a, b, epsilon, n, buckets):
        bounds = delta_bounds(a, b, epsilon, n, buckets=buckets)
        return bounds.lower, bounds.upper, None

    return bound


def _dp_accounting():
    import numpy as np
    from dp_accounting.pld import privacy_loss_distribution as pld

    def bound(a, b, epsilon, n, _):
        with np.errstate(divide="ignore"):
            upper, lower = (dict(enumerate(np.log(masses).tolist())) for masses in (a, b))
        pair = [
            pld.from_two_probability_mass_functions(
                lower, upper, pessimistic_estimate=pessimistic, value_discretization_interval=1e-5
            )
            for pessimistic in (False, True)
        ]
        prepared = time.process_time()
        deltas = [one.self_compose(n).get_delta_for_epsilon(epsilon) for one in pair]
        return deltas[0], deltas[1], prepared

    return bound


def _prv_accountant():
    import numpy as np
    from prv_accountant.accountant import PRVAccountant
    from prv_accountant.privacy_random_variables import PrivacyRandomVariable

    class Discrete(PrivacyRandomVariable):
        def __init__(self, a, b):
            both = (a > 0) & (b > 0)
            self.masses, self.losses = a[both], np.log(a[both]) - np.log(b[both])
            order = np.argsort(self.losses)
            self.sorted = self.losses[order]
            self.cumulative = np.insert(np.cumsum(self.masses[order]), 0, 0.0) / self.masses.sum()
            self.infinite = float(a[b == 0].sum())

        def cdf(self, t):
            return self.cumulative[np.searchsorted(self.sorted, t, side="right")]

        def rdp(self, alpha):
            exponents = (alpha - 1) * self.losses + np.log(self.masses / self.masses.sum())
            return (exponents.max() + np.log(np.exp(exponents - exponents.max()).sum())) / (alpha - 1)

        @property
        def pm_inf(self):
            return self.infinite

    def bound(a, b, epsilon, n, _):
        accountant = PRVAccountant(Discrete(a, b), eps_error=1e-3, delta_error=1e-10, max_self_compositions=n)
        prepared = time.process_time()
        lower, _, upper = accountant.compute_delta(epsilon, [n])
        return lower, upper, prepared

    return bound


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path_table", nargs="?", default="results/benchmark_accountants.csv")
    parser.add_argument("--compositions", type=int, nargs="+", default=[1, 2, 16, 128])
    parser.add_argument("--half-width", type=float, default=400.0)
    parser.add_argument("--cells", type=int, default=60000)
    parser.add_argument("--sigma", type=float, default=30.0)
    parser.add_argument("--sampling-rate", type=float, default=0.1)
    parser.add_argument("--epsilon", type=float, default=0.3)
    parser.add_argument("--buckets", type=int, default=250_000)
    parser.add_argument("--timeout", type=float, default=600.0)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    arguments = vars(parser.parse_args())
    task = arguments.pop("task")
    if task:
        print(json.dumps(_measure(json.loads(task))))
    else:
        main(**arguments)
