"""What surrounds a training run: reports of its progress, and checkpoints to go on from."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from optnoise.spec import TrainSpec
from optnoise.storage import atomic

REPORT_SECONDS = 0.3

Progress = Callable[[int, int, float, float], None]


class Log:
    """Passes progress on, a few times a second at most."""

    def __init__(self, spec: TrainSpec, progress: Progress | None, began: float) -> None:
        self.epochs, self.progress, self.last = spec.epochs, progress, began

    def report(self, epoch: int, losses: np.ndarray, deltas: np.ndarray) -> None:
        now = time.monotonic()
        if self.progress is not None and (now - self.last >= REPORT_SECONDS or epoch == self.epochs):
            self.last = now
            known = np.isfinite(losses) & np.isfinite(deltas)
            mean = [float(values[known].mean()) if known.any() else math.nan for values in (losses, deltas)]
            self.progress(epoch, self.epochs, *mean)


class Checkpoint:
    """A file of arrays from which a run of the same spec on the same backend goes on."""

    def __init__(self, spec: TrainSpec, backend: str, path: str | os.PathLike | None, seconds: float) -> None:
        self.path = None if path is None else Path(path)
        self.key = json.dumps([backend, spec.to_json()])
        self.seconds, self.last = seconds, time.monotonic()

    def load(self) -> dict[str, np.ndarray] | None:
        """The saved arrays, or ``None``, with a line on standard error where there is a file of no use."""
        if self.path is None or not self.path.exists():
            return None
        try:
            with open(self.path, "rb") as stream, np.load(stream, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            problem = None if str(arrays.pop("key")) == self.key else "it belongs to other parameters"
        except Exception as error:  # a damaged archive can raise nearly anything
            problem = f"it cannot be read ({type(error).__name__})"
        if problem is None:
            return arrays
        print(f"{self.path}: checkpoint ignored, {problem}; training starts afresh", file=sys.stderr)
        return None

    def save(self, arrays: Callable[[], dict[str, np.ndarray]]) -> None:
        """Write a checkpoint if the last is old enough."""
        now = time.monotonic()
        if self.path is None or now - self.last < self.seconds:
            return
        with atomic(self.path) as temporary, open(temporary, "wb") as stream:
            np.savez(stream, key=np.asarray(self.key), **arrays())
        self.last = now
