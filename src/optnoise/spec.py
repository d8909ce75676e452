"""What one training run is: every parameter that decides its noise, checked once and written canonically."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from optnoise.grid import Grid
from optnoise.pairs import ORDERS, PAIRS, check_sampling_rate

METHODS = ("adp", "pdp", "ma")
MODELS = ("sigmoid", "increments", "free", "cnn")
LOSSES = ("l1", "l2")
OPTIMISERS = ("adam", "lbfgs")
STARTS = ("auto", "initial", "gaussian")


@dataclass(frozen=True)
class TrainSpec:
    """One training run: one noise for each utility weight, all learned as a batch.

    half_width, sensitivity: units of the query. cells: 2N. method: the privacy loss that is minimised.
    loss: the utility loss. epochs: Adam's epochs or L-BFGS's most iterations. decay_half_life: T of
    w_t = max(w 2^(-t/T), minimum_weight), in epochs; None keeps the weight constant. decay_epochs: the epoch t whose
    weight L-BFGS ends at, having no epochs of its own. start: the model's own initial parameters, or the best
    truncated Gaussian for each weight; auto takes the latter for L-BFGS with models that can be fitted to masses.
    stacked, slope: K and C of the sigmoid model. buckets: 2m + 1, the training bucket grid. early_stop: end on
    convergence.
    """

    half_width: float
    cells: int
    sensitivity: float = 1.0
    model: str = "sigmoid"
    method: str = "adp"
    loss: str = "l1"
    pair: str = "additive"
    q: float | None = None
    order: str = "A/B"
    epsilon: float = 0.3
    compositions: int = 1
    weights: tuple[float, ...] = (0.1,)
    decay_half_life: float | None = None
    minimum_weight: float = 0.0
    decay_epochs: int | None = None
    optimiser: str = "lbfgs"
    start: str = "auto"
    epochs: int = 1000
    learning_rate: float = 1e-3
    learning_rate_factor: float = 0.99995
    buckets: int = 1001
    stacked: int = 1000
    slope: float = 500.0
    monotone: bool = True
    seed: int = 0
    early_stop: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.weights, str) or not isinstance(self.weights, Sequence | np.ndarray):
            raise ValueError(f"weights: {self.weights!r} is not allowed; give a list of numbers")
        for name in ("epsilon", "minimum_weight", "learning_rate", "learning_rate_factor", "slope"):
            _check_number(name, getattr(self, name))
        for name in ("q", "decay_half_life", "decay_epochs"):
            if getattr(self, name) is not None:
                _check_number(name, getattr(self, name))
        for name in ("monotone", "early_stop"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name}: {getattr(self, name)!r} is not allowed; it must be true or false")
        for weight in self.weights:
            _check_number("weights", weight)
        object.__setattr__(self, "weights", tuple(float(w) for w in self.weights))
        _ = self.grid  # checks half_width, cells and sensitivity
        for name, allowed in (
            ("model", MODELS),
            ("method", METHODS),
            ("loss", LOSSES),
            ("pair", PAIRS),
            ("order", ORDERS),
            ("optimiser", OPTIMISERS),
            ("start", STARTS),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}: {getattr(self, name)!r} is not allowed; choose one of {', '.join(allowed)}")
        if self.pair == "subsampled":
            check_sampling_rate(self.q)
        elif self.q is not None:
            raise ValueError(f"q: {self.q!r} is not allowed; only the subsampled pair has a sampling rate")
        for name, least in (("compositions", 1), ("epochs", 1), ("buckets", 3), ("stacked", 1), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name}: {value!r} is not allowed; it must be an integer, at least {least}")
        for name in ("epsilon", "minimum_weight"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{name}: {value!r} is not allowed; it must be finite and at least 0")
        for name in ("learning_rate", "learning_rate_factor", "slope"):
            value = getattr(self, name)
            if not math.isfinite(value) or value <= 0:
                raise ValueError(f"{name}: {value!r} is not allowed; it must be positive and finite")
        if not self.weights or any(not math.isfinite(w) or w < 0 for w in self.weights):
            raise ValueError(f"weights: {list(self.weights)!r} is not allowed; give finite numbers, at least 0")
        if self.decay_half_life is not None and not 0 < self.decay_half_life < math.inf:
            raise ValueError(
                f"decay_half_life: {self.decay_half_life!r} is not allowed; it must be positive and finite"
            )
        if self.decay_epochs is not None and not self.decay_epochs >= 0:
            raise ValueError(f"decay_epochs: {self.decay_epochs!r} is not allowed; it must be at least 0")

    @property
    def grid(self) -> Grid:
        """The grid the noises live on."""
        return Grid(self.half_width, self.cells, self.sensitivity)

    def weights_at(self, epoch: float) -> np.ndarray:
        """w_t = max(w 2^(-t/T), minimum weight), (W,); constant without a half-life."""
        weights = np.asarray(self.weights)
        if self.decay_half_life is None:
            return weights
        return np.maximum(weights * 2.0 ** (-epoch / self.decay_half_life), self.minimum_weight)

    @property
    def final_weights(self) -> np.ndarray:
        """The utility weights (W,) that the run ends at: those of epoch ``decay_epochs``, or else of the last one."""
        return self.weights_at(self.epochs if self.decay_epochs is None else self.decay_epochs)

    def as_dict(self) -> dict[str, Any]:
        """All parameters by name."""
        return asdict(self)

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces, no NaN. Equal specs give equal text."""
        return canonical_json(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TrainSpec:
        """The inverse of :meth:`to_json`; an unknown key is an error that names it."""
        values = json.loads(text)
        unknown = sorted(set(values) - set(cls.__dataclass_fields__))
        if unknown:
            allowed = ", ".join(cls.__dataclass_fields__)
            raise ValueError(f"{unknown[0]}: unknown training parameter; allowed are {allowed}")
        return cls(**values)


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
        raise ValueError(f"{name}: {value!r} is not allowed; it must be a number")


def canonical_json(value: Any) -> str:
    """Text that is equal exactly when the values are: keys sorted, numbers as Python writes them, no NaN."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    """Whole floats become integers, so that 1 and 1.0 in a config are the same value."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value
