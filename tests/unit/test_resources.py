"""What jobs ask for: more for larger ones, more at each attempt, a GPU when training would use one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from optnoise.resources import LEAST_MEMORY, LEAST_MINUTES, PROCESSORS, evaluation, training
from optnoise.spec import TrainSpec


def spec(backend: str = "numpy", **values: Any) -> Mapping[str, Any]:
    given = {"half_width": 400, "cells": 60_000, "weights": (0.1,) * 15, "epochs": 15_000, "optimiser": "adam"}
    return {"backend": backend, **TrainSpec(**(given | values)).as_dict()}


@pytest.mark.parametrize(
    ("backend", "optimiser", "gpus"),
    [("numpy", "adam", 0), ("cupy", "adam", 1), ("auto", "adam", 1), ("auto", "lbfgs", 0)],
)
def test_a_gpu_when_training_would_use_one(backend: str, optimiser: str, gpus: int) -> None:
    assert training(spec(backend, optimiser=optimiser)).gpus == gpus


def test_larger_training_asks_for_more() -> None:
    small, large = training(spec(epochs=100, cells=4000)), training(spec())
    assert large.memory > small.memory > LEAST_MEMORY
    assert large.minutes > small.minutes >= LEAST_MINUTES
    assert (small.cpus, large.cpus) == (1, PROCESSORS)
    assert training(spec(weights=(0.1, 0.2))).cpus == 2


def test_larger_evaluation_asks_for_more() -> None:
    one = {"q": [None], "compositions": [1], "kinds": ["adp"], "epsilons": [0.3], "buckets": 1000}
    small = evaluation(one, {"parameters": [1.0], "cells": 100})
    large = evaluation(one | {"compositions": list(range(1, 1000)), "buckets": 250_000}, spec())
    assert large.memory > small.memory and large.minutes > small.minutes


def test_memory_and_time_grow_with_the_attempt() -> None:
    request = training(spec())
    first, second = request.resources(1), request.resources(2)
    assert second["mem_mb"] == pytest.approx(2 * first["mem_mb"], abs=1)
    assert second["runtime"] == pytest.approx(2 * first["runtime"], abs=1)
    assert (second["cpus_per_task"], second["gpu"]) == (first["cpus_per_task"], first["gpu"])
    assert all(isinstance(value, int) for value in first.values())
    assert dataclasses.replace(request, minutes=1e9).resources(1)["runtime"] == 7 * 24 * 60
