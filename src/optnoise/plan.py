"""From the config to the runs: sizes looked up, lists expanded, every value checked, one canonical spec per job.

An experiment of the config becomes one or more runs, one for each combination of the lists under its ``vary``. A
run has a noise spec (what decides its noise) and an evaluation spec (what decides its deltas). Each is one
dictionary, given to its job as canonical JSON, so that Snakemake sees a change exactly when there is one.
"""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from optnoise.grid import Grid
from optnoise.spec import TrainSpec, canonical_json

TRAINING_KEYS = (
    *("half_width", "cells", "sensitivity", "model", "method", "loss", "pair", "q", "order", "epsilon"),
    *("compositions", "weights", "monotone", "seed", "start", "early_stop"),
    *("learning_rate", "learning_rate_factor", "slope"),
)
ANALYTIC_KEYS = ("family", "half_width", "cells", "sensitivity", "parameters", "point_mass")


@dataclass(frozen=True)
class Run:
    """One noise file and its evaluation. ``kind``: learned | analytic | matched; ``source``: the noise matched."""

    experiment: str
    name: str
    kind: str
    noise: Mapping[str, Any]
    evaluation: Mapping[str, Any]
    source: tuple[str, str] | None = None

    @property
    def noise_json(self) -> str:
        """Canonical JSON of all that decides the noise."""
        return canonical_json(self.noise)

    @property
    def evaluation_json(self) -> str:
        """Canonical JSON of all that decides the evaluation, the noise apart."""
        return canonical_json(self.evaluation)


class ConfigError(ValueError):
    """A config value that is not allowed; the message is one line that names the key, the value and what is allowed."""


def resolve(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with every ``sizes.`` reference and every range (``linear``, ``geometric``) replaced by its value."""
    sizes = config.get("sizes") or {}

    def walk(value: Any, path: str) -> Any:
        if isinstance(value, str) and value.startswith("sizes."):
            return walk(_look_up(sizes, value, path), path)
        if isinstance(value, Mapping):
            plain = {str(key): walk(item, f"{path}.{key}" if path else str(key)) for key, item in value.items()}
            return _expand_range(plain, path) if {"linear", "geometric"} & set(plain) else plain
        if isinstance(value, (list, tuple)):
            return [walk(item, f"{path}[{index}]") for index, item in enumerate(value)]
        return value

    return walk(config, "")


def _look_up(sizes: Mapping[str, Any], reference: str, path: str) -> Any:
    value: Any = sizes
    for part in reference.split(".")[1:]:
        if not isinstance(value, Mapping) or part not in value:
            known = ", ".join(map(str, value)) if isinstance(value, Mapping) else "nothing below it"
            raise ConfigError(f"config: {path}: {reference!r} names no size; sizes has {known}")
        value = value[part]
    return value


def _expand_range(value: Mapping[str, Any], path: str) -> list[float]:
    scale = "linear" if "linear" in value else "geometric"
    ends, points = value[scale], value.get("points")
    numbers = isinstance(ends, list) and len(ends) == 2 and all(_is_number(end) for end in ends)
    if set(value) != {scale, "points"} or not numbers or not ends[0] < ends[1] or not _is_number(points) or points < 2:
        raise ConfigError(
            f"config: {path}: {dict(value)!r} is not allowed; write {{{scale}: [low, high], points: 2 or more}}"
        )
    if scale == "linear":
        return [ends[0] + (ends[1] - ends[0]) * i / (points - 1) for i in range(points)]
    if ends[0] <= 0:
        raise ConfigError(f"config: {path}: {ends!r} is not allowed; a geometric range starts above 0")
    low, high = math.log(ends[0]), math.log(ends[1])
    inner = [math.exp(low + (high - low) * i / (points - 1)) for i in range(1, points - 1)]
    return [ends[0], *inner, ends[1]]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check(config: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` for the first fault that the JSON schema finds in a resolved config."""
    from jsonschema import Draft202012Validator

    endless = _not_finite(config, "")
    if endless is not None:
        raise ConfigError(f"config: {endless[0]}: {endless[1]!r} is not allowed; it must be finite")
    config = _ends(config)
    errors = sorted(Draft202012Validator(schema).iter_errors(config), key=lambda error: _position(config, error.path))
    if errors:
        raise ConfigError(_one_line(errors[0]))


def _not_finite(value: Any, path: str) -> tuple[str, float] | None:
    """Where the first number that is infinite or not one stands, and that number; no schema can tell."""
    if isinstance(value, float):
        return None if math.isfinite(value) else (path, value)
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    found = (_not_finite(item, f"{path}.{key}" if path else str(key)) for key, item in items)
    return next((one for one in found if one is not None), None)


def _ends(value: Any) -> Any:
    """The config with every rising list of floats cut to its ends and one between: no bound tells them from the list.

    A curve of thousands of epsilons, in every experiment that draws one, would else be most of the time of a dry run.
    """
    if isinstance(value, Mapping):
        return {key: _ends(item) for key, item in value.items()}
    if isinstance(value, list):
        inner = value[1:-1]
        if inner and set(map(type, inner)) == {float} and all(low < high for low, high in itertools.pairwise(value)):
            # one that is not whole, if there is one: a list of integers must not have it
            return [value[0], next((item for item in inner if not item.is_integer()), inner[0]), value[-1]]
        return [_ends(item) for item in value]
    return value


def _position(config: Any, path: Iterable[str | int]) -> list[int]:
    """Where a path stands in the config, so that the first fault in it is named first."""
    position = []
    for part in path:
        position.append(list(config).index(part) if isinstance(config, Mapping) else part)
        config = config[part]
    return position


def _one_line(error: Any) -> str:
    """A schema fault as one line: where, the value, what is allowed."""
    path = ".".join(str(part) for part in error.absolute_path) or "top level"
    if error.validator == "additionalProperties":
        allowed = sorted(error.schema.get("properties", {}))
        unknown = next(key for key in error.instance if key not in allowed)
        near = difflib.get_close_matches(str(unknown), allowed, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return f"config: {path}: unknown key {unknown!r}; {hint}allowed are {', '.join(allowed)}"
    if error.validator == "required":
        missing = next(key for key in error.validator_value if key not in error.instance)
        return f"config: {path}: key {missing!r} is missing"
    if error.validator == "type":
        allowed = (
            error.validator_value if isinstance(error.validator_value, str) else " or ".join(error.validator_value)
        )
        hint = ""
        if isinstance(error.instance, str) and "number" in str(error.validator_value):
            try:
                float(error.instance)
                hint = " (YAML reads 1e-3 as text; write 1.0e-3)"
            except ValueError:
                pass
        return f"config: {path}: {error.instance!r} is not allowed; it must be of type {allowed}{hint}"
    limits = {
        "enum": "choose one of {}",
        "minimum": "it must be at least {}",
        "maximum": "it must be at most {}",
        "exclusiveMinimum": "it must be above {}",
        "exclusiveMaximum": "it must be below {}",
        "minItems": "it needs at least {} item",
        "pattern": "it must match {}",
        "const": "it must be {!r}",
        "multipleOf": "it must be a multiple of {}",
        "uniqueItems": "no item may stand twice",
    }
    allowed = error.validator_value
    text = ", ".join(map(str, allowed)) if isinstance(allowed, list) else allowed
    rule = limits.get(error.validator, error.message).format(text)
    return f"config: {path}: {error.instance!r} is not allowed; {rule}"


def runs(config: Mapping[str, Any]) -> dict[str, dict[str, Run]]:
    """All runs of a resolved and checked config: experiment id -> run name -> :class:`Run`.

    Raises :class:`ConfigError` for values that no schema can judge, such as a sensitivity that is no whole number of
    cells, a matched experiment without its source, or an experiment that a figure names and that is not there.
    """
    _check_grids(config)
    experiments = config["experiments"]
    plan: dict[str, dict[str, Run]] = {}
    for name, experiment in sorted(experiments.items(), key=lambda item: item[1]["kind"] == "matched"):
        make = {"learned": _learned, "analytic": _analytic, "matched": _matched}[experiment["kind"]]
        plan[name] = {run.name: run for run in make(name, experiment, config, plan)}
    readers = {f"figures.{name}": reads for name, reads in config["figures"].items()}
    readers |= {"claims": config["claims"], "certificates": {"frontiers": config["certificates"]["frontiers"]}}
    for reader, reads in readers.items():
        for kind, names in reads.items():
            for name in names:
                if kind != "extra" and name not in plan:
                    known = ", ".join(experiments)
                    raise ConfigError(f"config: {reader}.{kind}: {name!r} is no experiment; known are {known}")
    return plan


def _check_grids(config: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` for a grid outside the experiments on which the sensitivity is no number of cells."""
    benchmark = config["sizes"].get("benchmark", {"half_widths": []})
    grids = {f"mechanisms.{name}": wanted for name, wanted in config["mechanisms"].items()}
    grids["certificates.renyi"] = config["certificates"]["renyi"]
    grids |= {
        f"sizes.benchmark: half-width {r:g}": {"half_width": r, "cells": benchmark["cells"], "sensitivity": 1}
        for r in benchmark["half_widths"]
    }
    for where, wanted in grids.items():
        try:
            Grid(*(wanted[name] for name in ("half_width", "cells", "sensitivity")))
        except ValueError as error:
            raise ConfigError(f"config: {where}: {error}") from None


def _variants(name: str, experiment: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(run name, experiment with one value for each varied key), for each combination."""
    vary = dict(sorted(experiment.get("vary", {}).items()))  # a run's name must not hang on the order of keys
    for key in vary:
        if key in experiment:
            raise ConfigError(f"config: experiments.{name}.{key}: {experiment[key]!r} is not allowed; vary has it too")
    fixed = {key: value for key, value in experiment.items() if key != "vary"}
    for values in itertools.product(*vary.values()):
        choice = dict(zip(vary, values, strict=True))
        label = "_".join(_label(key, value) for key, value in choice.items()) or "all"
        yield label, fixed | choice


def _label(key: str, value: Any) -> str:
    """A short, readable part of a run's name. It is a name only: nothing reads a setting back from it."""
    if key == "decayed":
        return "decay" if value else "constant"
    short = {"compositions": "n", "half_width": "r", "epsilon": "eps", "model": "", "loss": ""}
    if key == "order":
        return value.replace("/", "")
    return f"{short.get(key, key.replace('_', '-'))}{value}"


def _learned(name: str, experiment: Mapping[str, Any], config: Mapping[str, Any], _: Any) -> Iterator[Run]:
    sizes = config["sizes"]
    if (config["backend"], sizes["optimiser"]) == ("cupy", "lbfgs"):
        raise ConfigError(
            "config: backend: 'cupy' is not allowed with sizes.optimiser 'lbfgs', which computes on the host; "
            "choose auto or numpy, or the optimiser adam"
        )
    for label, one in _variants(name, experiment):
        decay = one.get("decay") if one.get("decayed", True) else None
        values = {key: one[key] for key in TRAINING_KEYS if key in one}
        values |= {"stacked": sizes["stacked"], "optimiser": sizes["optimiser"]}
        values["buckets"] = one.get("training_buckets", sizes["training_buckets"])
        if decay:
            values |= {"decay_half_life": decay["half_life"], "minimum_weight": decay["minimum"]}
        if sizes["optimiser"] == "adam":
            values["epochs"] = one["epochs"]
        else:
            values["epochs"] = one["iterations"]
            if decay:
                values["decay_epochs"] = one["epochs"]
        try:
            spec = TrainSpec(**values)
        except ValueError as error:
            raise ConfigError(f"config: experiments.{name}: run {label}: {error}") from None
        labels = {
            "method": spec.method,
            "model": spec.model,
            "loss": spec.loss,
            "decay": bool(decay),
            "pair": spec.pair,
            "q": [spec.q],
            "compositions": [spec.compositions],
            "trained_epsilon": spec.epsilon,
        }
        noise = {"backend": config["backend"], **spec.as_dict()}
        yield Run(name, label, "learned", noise, _evaluation(name, label, one, labels, sizes))


def _analytic(name: str, experiment: Mapping[str, Any], config: Mapping[str, Any], _: Any) -> Iterator[Run]:
    from optnoise.baselines import grid_of

    for label, one in _variants(name, experiment):
        noise = {key: one[key] for key in ANALYTIC_KEYS if key in one}
        if "parameter" in one:
            noise["parameters"] = [one["parameter"]]
        try:
            grid_of(noise, parameter=noise["parameters"][0])
        except ValueError as error:
            raise ConfigError(f"config: experiments.{name}: run {label}: {error}") from None
        labels = {"method": one["family"].removesuffix("_for_delta"), "model": "analytic", "loss": None, "decay": False}
        labels |= {"pair": "additive", "q": [None], "compositions": [1], "trained_epsilon": None}
        yield Run(name, label, "analytic", noise, _evaluation(name, label, one, labels, config["sizes"]))


def _matched(
    name: str, experiment: Mapping[str, Any], config: Mapping[str, Any], plan: Mapping[str, Mapping[str, Run]]
) -> Iterator[Run]:
    source = experiment["source"]
    if source not in plan or any(run.kind != "learned" for run in plan[source].values()):
        raise ConfigError(f"config: experiments.{name}.source: {source!r} is not allowed; name a learned experiment")
    chosen = experiment.get("select", {})
    for key, value in chosen.items():
        there = sorted({run.noise.get(key) for run in plan[source].values()})
        if value not in there:
            known = ", ".join(map(str, there))
            raise ConfigError(
                f"config: experiments.{name}.select.{key}: {value!r} is no run of {source}; it has {known}"
            )
    for run in plan[source].values():
        if all(run.noise.get(key) == value for key, value in chosen.items()):
            noise = {"family": experiment["family"], "loss": run.noise["loss"]}
            labels = {**run.evaluation, "method": experiment["family"], "model": "analytic", "decay": False}
            evaluation = _evaluation(name, run.name, experiment, labels, config["sizes"])
            yield Run(name, run.name, "matched", noise, evaluation, source=(source, run.name))


def _evaluation(
    name: str, label: str, one: Mapping[str, Any], labels: Mapping[str, Any], sizes: Mapping[str, Any]
) -> dict[str, Any]:
    wanted = one["evaluate"]
    epsilons = wanted["epsilons"]
    merged = dict(labels) | {key: wanted[key] for key in ("pair", "q", "compositions", "kinds") if key in wanted}
    if epsilons == "trained":
        epsilons = [labels["trained_epsilon"]]
    return merged | {
        "experiment": name,
        "run": label,
        "epsilons": epsilons,
        "kinds": merged.get("kinds", ["adp"]),
        "buckets": sizes["evaluation_buckets"],
    }
