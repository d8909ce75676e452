"""What a job asks of its machine, from the size of its spec: processors, memory, time, a GPU.

The estimates are fits to measured jobs, times a margin: a job that asks for too little is stopped by a cluster and
comes back with more (memory and time grow with each attempt); one that asks for far too much waits in the queue.
They decide where and how long a job may run, never what it computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PROCESSORS = 8  # the most that one training job asks for; its utility weights are spread over them
MARGIN = 4.0  # between the time of a fit and the time that is asked for: processors differ, nodes are shared
LEAST_MINUTES = 10.0
LEAST_MEMORY = 1000.0  # the interpreter, the libraries, and Snakemake beside them, MB
DEVICE_MEMORY = 3000.0  # host memory of a CUDA context and its libraries, MB
DEVICE_SPEED = 10.0  # a GPU over one processor, the least to count on
SECONDS_PER_PROCESSOR = 300.0  # of work, before one more processor is worth its wait in the queue
WEEK = 7 * 24 * 60.0


@dataclass(frozen=True)
class Request:
    """Processors, memory (MB), time (minutes) and GPUs of one job at its first attempt."""

    cpus: int = 1
    memory: float = LEAST_MEMORY
    minutes: float = LEAST_MINUTES
    gpus: int = 0

    def resources(self, attempt: int = 1) -> dict[str, int]:
        """Snakemake's resources for an attempt, counted from 1."""
        return {
            "cpus_per_task": self.cpus,
            "mem_mb": round(self.memory * attempt),
            "runtime": round(min(self.minutes * attempt, WEEK)),
            "gpu": self.gpus,
        }


SMALL = Request()  # jobs of seconds, whatever their size: formulas, reductions, drawings


def training(noise: Mapping[str, Any]) -> Request:
    """The request of a training job, from a run's noise spec (:class:`optnoise.plan.Run`).

    A GPU is asked for when training would use one: by Adam, on the backend ``cupy``, or ``auto`` where it takes a
    GPU that is there. L-BFGS computes on the host.
    """
    weights, cells = len(noise["weights"]), noise["cells"]
    on_device = noise["optimiser"] == "adam" and noise["backend"] != "numpy"
    seconds = 2.5e-7 * noise["epochs"] * (cells + 20_000) * weights * (10 if noise["model"] == "cnn" else 1)
    cpus = 1 if on_device else min(weights, PROCESSORS, 1 + int(seconds / SECONDS_PER_PROCESSOR))
    seconds /= DEVICE_SPEED if on_device else cpus
    memory = LEAST_MEMORY + 100.0 * cpus + 2e-4 * weights * cells + (DEVICE_MEMORY if on_device else 0.0)
    return Request(cpus, memory, LEAST_MINUTES + MARGIN * seconds / 60, gpus=int(on_device))


def evaluation(evaluation: Mapping[str, Any], noise: Mapping[str, Any]) -> Request:
    """The request of an evaluation, from the run's evaluation spec and the noise spec that says how many noises."""
    noises = len(noise.get("weights") or noise.get("parameters"))
    cases = noises * 2  # both orders
    for name in ("q", "compositions", "kinds"):
        cases *= len(evaluation[name])
    size = evaluation["buckets"] + noise.get("cells", 0) + 50.0 * len(evaluation["epsilons"])
    memory = LEAST_MEMORY + 2e-3 * size
    return Request(1, memory, LEAST_MINUTES + MARGIN * 2e-6 * size * cases / 60)
