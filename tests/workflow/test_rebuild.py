"""What a change rebuilds, counted by Snakemake: exactly what it affects."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import yaml
from repository import Workflow

pytestmark = pytest.mark.workflow


def test_nothing_changed_runs_nothing(workflow: Workflow) -> None:
    assert not workflow.planned()


def test_every_figure_is_there(built: Workflow) -> None:
    config = yaml.safe_load((built.folder / "config.yaml").read_text())
    for figure in config["figures"]:
        for ending in ("pdf", "png", "md"):
            assert (built.folder / "results/figures" / f"{figure}.{ending}").stat().st_size > 0


def test_each_noise_is_trained_once(bare: Workflow) -> None:
    """fig3, fig9 and fig12 share runs, and so do fig4, fig10 and fig11."""
    for figures in (("fig3", "fig9", "fig12"), ("fig4", "fig10", "fig11")):
        together = bare.planned(*figures)["train"]
        alone = [bare.planned(figure)["train"] for figure in figures]
        assert max(alone) <= together < sum(alone)


def test_one_weight_list_changes_that_experiment_only(workflow: Workflow) -> None:
    workflow.edit(
        "config.yaml",
        "    method: adp\n    cells: sizes.cells.range\n    weights: [0.05]",
        "    method: adp\n    cells: sizes.cells.range\n    weights: [0.05, 0.04]",
    )
    outputs = workflow.planned_outputs()
    experiments = {
        Path(name).parts[2].removesuffix(".csv") for name in outputs if not name.startswith("results/figures")
    }
    assert experiments == {"range_adp"}
    assert {name for name in outputs if name.endswith(".png")} == {"results/figures/ext_range.png"}


def test_two_parameters_swapped_are_noticed(workflow: Workflow) -> None:
    old = "    half_width: 400\n    cells: sizes.cells.sweep\n    parameters: [10, 20, 50, 100]"
    workflow.edit("config.yaml", old, old.replace("[10, 20, 50, 100]", "[20, 10, 50, 100]"))
    assert workflow.planned("ext_point_mass")["analytic"] > 0


def test_a_value_moved_to_another_name_is_noticed(workflow: Workflow) -> None:
    """The same values under other names: seed 3 and stacked 40 become seed 40 and stacked 3."""
    workflow.edit("tests/tiny/config.yaml", "stacked: 40", "stacked: 3")
    workflow.edit(
        "config.yaml", "  stairs_adp:\n    kind: learned\n", "  stairs_adp:\n    kind: learned\n    seed: 40\n"
    )
    assert workflow.planned("fig1a")["train"] > 0


def test_a_renamed_experiment_is_noticed(workflow: Workflow) -> None:
    text = (workflow.folder / "config.yaml").read_text()
    (workflow.folder / "config.yaml").write_text(text.replace("range_adp", "reach_adp"))
    edit = workflow.folder / "scripts/figures/ext_range.py"
    edit.write_text(edit.read_text().replace("range_adp", "reach_adp"))
    outputs = workflow.planned_outputs("ext_range")
    assert "results/noise/reach_adp/r15.npz" in outputs


def test_spelling_of_the_config_changes_nothing(workflow: Workflow) -> None:
    """Keys in another order, and numbers written otherwise: 0.1 as 1.0e-1, 5 as 5.0."""
    path = workflow.folder / "config.yaml"
    config = yaml.safe_load(path.read_text())

    def reversed_keys(value: object) -> object:
        if isinstance(value, dict):
            # figures keep the order of their inputs' lists, which is what they draw
            return {key: reversed_keys(item) for key, item in reversed(value.items())}
        return value

    config["experiments"] = reversed_keys(config["experiments"])
    text = yaml.safe_dump(config, sort_keys=False)
    text = text.replace("weights:\n    - 0.1\n", "weights:\n    - 1.0e-1\n").replace(
        "half_width: 5\n", "half_width: 5.0\n"
    )
    assert "1.0e-1" in text and "5.0" in text
    path.write_text(text)
    assert not workflow.planned()


def test_touching_files_changes_nothing(workflow: Workflow) -> None:
    for folder in ("src", "scripts", "rules"):
        for path in (workflow.folder / folder).rglob("*.*"):
            os.utime(path)
    for name in ("config.yaml", "matplotlibrc", "Snakefile"):
        os.utime(workflow.folder / name)
    assert not workflow.planned()


def test_moving_the_repository_changes_nothing(workflow: Workflow) -> None:
    moved = workflow.folder.with_name("elsewhere")
    shutil.move(workflow.folder, moved)
    assert not Workflow(moved).planned()


@pytest.mark.parametrize("path", ["src/optnoise/style.py", "scripts/figures/fig3.py", "matplotlibrc"])
def test_looks_do_not_retrain(workflow: Workflow, path: str) -> None:
    with open(workflow.folder / path, "a") as file:
        file.write("# another look\n")
    planned = workflow.planned()
    assert planned["fig3"] == 1
    assert not planned.keys() & {"train", "analytic", "match", "evaluate", "reduce"}


def test_progress_messages_rebuild_nothing(workflow: Workflow) -> None:
    with open(workflow.folder / "src/optnoise/progress.py", "a") as file:
        file.write("# another bar\n")
    assert not workflow.planned()


def test_a_module_that_decides_training_retrains(workflow: Workflow) -> None:
    with open(workflow.folder / "src/optnoise/losses.py", "a") as file:
        file.write("# another loss\n")
    noises = (workflow.folder / "results/noise").rglob("*.npz")
    learned = [path for path in noises if "weights" in json.dumps(_spec(path))]
    assert workflow.planned()["train"] == len(learned) > 0


def test_a_size_changes_all_that_has_it(workflow: Workflow, bare: Workflow) -> None:
    for name in ("training_buckets", "fine_buckets"):
        workflow.edit("tests/tiny/config.yaml", f"{name}: 201", f"{name}: 101")
    assert workflow.planned()["train"] == bare.planned()["train"]


def test_another_preset_changes_everything(workflow: Workflow, bare: Workflow) -> None:
    for rule in ("train", "evaluate"):
        assert workflow.planned(config="config/paper.yaml")[rule] == bare.planned(config="config/paper.yaml")[rule]


def _spec(path: Path) -> dict:
    import numpy as np

    with np.load(path) as archive:
        return json.loads(str(archive["meta"]))["spec"]
