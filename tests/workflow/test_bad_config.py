"""A wrong config stops before any job, with one line that names the key, the value and what is allowed."""

from __future__ import annotations

import pytest
from repository import Workflow

pytestmark = pytest.mark.workflow

RANGE = "    cells: sizes.cells.range\n    weights: [0.5]\n"


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            RANGE,
            RANGE.replace("weights", "wieghts"),
            "experiments.range_adp: unknown key 'wieghts'; allowed are about, cells",
        ),
        (
            RANGE,
            RANGE.replace("0.5", "5e-1"),
            "experiments.range_adp.weights.0: '5e-1' is not allowed; it must be of type number",
        ),
        (
            RANGE,
            RANGE.replace("0.5", "-0.5"),
            "experiments.range_adp.weights.0: -0.5 is not allowed; it must be at least 0",
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
        ("backend: auto", "bakend: auto", "top level: unknown key 'bakend'; allowed are backend, claims"),
    ],
)
def test_one_line(bare: Workflow, old: str, new: str, line: str) -> None:
    bare.edit("config.yaml", old, new)
    output = bare.run(check=False)
    assert "Execute" not in output and not (bare.folder / "results").exists()
    assert [text for text in output.splitlines() if text.startswith("config: ") and line in text], output
