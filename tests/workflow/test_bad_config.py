"""A wrong config stops before any job; every kind of fault has its exact line in tests/unit/test_plan.py."""

from __future__ import annotations

import pytest
from repository import Workflow

from optnoise.backend import device_problem

pytestmark = pytest.mark.workflow

RANGE = "    cells: sizes.cells.range\n    weights: [0.05]\n"


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            RANGE,
            RANGE.replace("weights", "wieghts"),
            "experiments.range_adp: unknown key 'wieghts'; did you mean 'weights'? allowed are",
        ),
        (RANGE, RANGE.replace("0.05", "5e-2"), "experiments.range_adp.weights.0: '5e-2' is not allowed; it must be"),
        (
            RANGE,
            RANGE + "    epsilon: -0.1\n",
            "experiments.range_adp.epsilon: -0.1 is not allowed; it must be at least 0",
        ),
    ],
)
def test_one_line_before_any_job(bare: Workflow, old: str, new: str, line: str) -> None:
    bare.edit("config.yaml", old, new)
    output = bare.run(check=False)
    assert "Execute" not in output and not (bare.folder / "results").exists()
    assert len([text for text in output.splitlines() if text.startswith("config: ") and line in text]) == 1, output


@pytest.mark.skipif(device_problem() is None, reason="there is a device here")
def test_a_device_that_is_not_there_stops_the_run_before_any_job(bare: Workflow) -> None:
    bare.edit("config.yaml", "backend: auto", "backend: cupy")
    bare.edit("config.yaml", "optimiser: lbfgs", "optimiser: adam")
    output = bare.run("fig1a", check=False, config=None)
    assert "config: backend: 'cupy' is not allowed here: " in output and "choose auto or numpy" in output
    assert not (bare.folder / "results").exists()
