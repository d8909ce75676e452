"""The plan of runs: references, ranges, expansion, and one line for each kind of wrong value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from optnoise import plan
from optnoise.spec import TrainSpec

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = yaml.safe_load((ROOT / "config.schema.yaml").read_text())
PRESETS = {"default": None, "paper": "config/paper.yaml", "tiny": "tests/tiny/config.yaml"}
RANGE = "    cells: sizes.cells.range\n    weights: [0.05]\n"


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Snakemake's deep merge of one config over another."""
    both = dict(base)
    for key, value in over.items():
        both[key] = merged(base[key], value) if isinstance(value, dict) and isinstance(base.get(key), dict) else value
    return both


def load(text: str, preset: str | None = "tests/tiny/config.yaml") -> dict[str, dict[str, plan.Run]]:
    config = yaml.safe_load(text)
    if preset:
        config = merged(config, yaml.safe_load((ROOT / preset).read_text()))
    settings = plan.resolve(config)
    plan.check(settings, SCHEMA)
    return plan.runs(settings)


CONFIG = (ROOT / "config.yaml").read_text()


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_presets_are_valid_and_have_the_same_experiments(preset: str | None) -> None:
    runs = load(CONFIG, preset)
    assert list(runs) == list(load(CONFIG, None))
    for experiment in runs.values():
        for run in experiment.values():
            if run.kind == "learned":
                values = json.loads(run.noise_json)
                values.pop("backend")
                assert TrainSpec.from_json(json.dumps(values)).as_dict() == {
                    key: tuple(value) if isinstance(value, list) else value
                    for key, value in run.noise.items()
                    if key != "backend"
                }


def test_presets_replace_sizes_only() -> None:
    for preset in filter(None, PRESETS.values()):
        assert set(yaml.safe_load((ROOT / preset).read_text())) <= {"sizes", "backend"}


def test_every_key_of_the_schema_is_described() -> None:
    def walk(node: Any, path: str) -> None:
        if isinstance(node, dict):
            for key, value in node.get("properties", {}).items():
                described = "description" in value or "$ref" in value or "const" in value or path.endswith("vary")
                assert described, f"{path}.{key} has no description"
            for key, value in node.items():
                walk(value, f"{path}.{key}" if key != "properties" else path)

    walk(SCHEMA, "")


def test_whole_floats_and_integers_give_the_same_spec() -> None:
    one, other = load(CONFIG), load(CONFIG.replace("half_width: 400", "half_width: 400.0"))
    assert one["sweep_adp_l1"]["n1_decay"].noise_json == other["sweep_adp_l1"]["n1_decay"].noise_json


def test_swapped_values_give_another_spec() -> None:
    other = CONFIG.replace("parameters: [10, 20, 50, 100]", "parameters: [20, 10, 50, 100]")
    name = next(iter(load(CONFIG)["point_mass"]))
    assert load(CONFIG)["point_mass"][name].noise_json != load(other)["point_mass"][name].noise_json


def test_matched_runs_follow_their_source() -> None:
    runs = load(CONFIG)["sgd_gaussian_l1"]
    assert all(run.source == ("sgd_adp_l1", name) and name.endswith("BA") for name, run in runs.items())


def test_ranges_reach_both_ends() -> None:
    config = {"a": {"linear": [0.0, 0.5], "points": 3}, "b": {"geometric": [1.0e-3, 1.0e3], "points": 7}}
    values = plan.resolve(config)
    assert values["a"] == [0, 0.25, 0.5]
    assert values["b"][0] == 1e-3 and values["b"][-1] == 1e3
    assert values["b"] == pytest.approx([1e-3, 1e-2, 0.1, 1, 10, 100, 1000])


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            RANGE,
            RANGE.replace("weights", "wieghts"),
            "experiments.range_adp: unknown key 'wieghts'; did you mean 'weights'? allowed are",
        ),
        (
            RANGE,
            RANGE.replace("0.05", "5e-2"),
            "experiments.range_adp.weights.0: '5e-2' is not allowed; it must be of type number",
        ),
        (
            RANGE,
            RANGE.replace("0.05", "-0.05"),
            "experiments.range_adp.weights.0: -0.05 is not allowed; it must be at least 0",
        ),
        (
            RANGE,
            RANGE.replace("cells.range", "cells.rnage"),
            "experiments.range_adp.cells: 'sizes.cells.rnage' names no size",
        ),
        (
            RANGE,
            RANGE.replace("sizes.cells.range", "1202"),
            "run r15: cells: 1202 cells on [-15, 15] make sensitivity 1 span",
        ),
        (
            RANGE,
            RANGE + "    q: 0.1\n",
            "experiments.range_adp: run r15: q: 0.1 is not allowed; only the subsampled pair",
        ),
        (
            RANGE,
            RANGE + "    epsilon: -0.1\n",
            "experiments.range_adp.epsilon: -0.1 is not allowed; it must be at least 0",
        ),
        (
            RANGE,
            RANGE + "    compositions: 0\n",
            "experiments.range_adp.compositions: 0 is not allowed; it must be at least 1",
        ),
        (RANGE, RANGE + "    compositions: 1.5\n", "compositions: 1.5 is not allowed; it must be of type integer"),
        (RANGE, RANGE + "    loss: l3\n", "experiments.range_adp.loss: 'l3' is not allowed; choose one of l1, l2"),
        ("    q: 0.1\n", "    q: 1.1\n", "experiments.sgd_adp_l1.q: 1.1 is not allowed; it must be at most 1"),
        ("    q: 0.1\n", "    q: 0\n", "experiments.sgd_adp_l1.q: 0 is not allowed; it must be above 0"),
        (
            "  fig7: {frontier: [gaussian]}",
            "  fig7: {frontier: [gausian]}",
            "figures.fig7.frontier: 'gausian' is no experiment",
        ),
        (
            RANGE,
            RANGE + "    half_width: 5\n",
            "experiments.range_adp.half_width: 5 is not allowed; vary has it too",
        ),
        (
            "    vary: {half_width: sizes.range_half_widths}\n",
            "    vary: {half_width: [5, 5]}\n",
            "experiments.range_adp.vary.half_width: [5, 5] is not allowed; no item may stand twice",
        ),
        (
            "    select: {order: B/A}\n",
            "    select: {order: B/A, compositions: 3}\n",
            "experiments.sgd_gaussian_l1.select.compositions: 3 is no run of sgd_adp_l1; it has 8",
        ),
        (
            "evaluate: {epsilons: trained}",
            "evaluate: {epsilons: [.nan]}",
            "experiments.sweep_epsilons.evaluate.epsilons.0: nan is not allowed; it must be finite",
        ),
        (
            "    half_width: 100\n    cells: sizes.cells.mechanism\n",
            "    half_width: 100\n    cells: 250\n",
            "mechanisms.count_16: cells: 250 cells on [-100, 100] make sensitivity 1 span 1.25 cells",
        ),
        (
            "backend: auto",
            "bakend: auto",
            "top level: unknown key 'bakend'; did you mean 'backend'? allowed are backend, certificates, claims",
        ),
    ],
)
def test_one_line(old: str, new: str, line: str) -> None:
    assert old in CONFIG
    with pytest.raises(plan.ConfigError) as caught:
        load(CONFIG.replace(old, new, 1))
    message = str(caught.value)
    assert line in message and message.startswith("config: ") and "\n" not in message


def test_cupy_does_not_go_with_lbfgs() -> None:
    with pytest.raises(plan.ConfigError, match=r"backend: 'cupy' is not allowed with sizes.optimiser 'lbfgs', which"):
        load(CONFIG.replace("backend: auto", "backend: cupy"), preset=None)
    load(CONFIG.replace("backend: auto", "backend: cupy"), preset="config/paper.yaml")
