"""The training benchmark writes a whole table, with or without PyTorch; its times are not tested."""

import csv
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "benchmark_training.py"


def read(path):
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def script():
    specification = importlib.util.spec_from_file_location("benchmark_training", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_table_of_a_small_case(tmp_path):
    options = ["--methods", "adp", "--half-widths", "5", "--cells", "200", "--stacked", "20"]
    options += ["--compositions", "2", "--batch", "2", "--epochs", "3"]
    table = tmp_path / "new" / "table.csv"
    done = subprocess.run([sys.executable, SCRIPT, "--table", table, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = read(table)
    assert [(row["backend"], row["batch"]) for row in rows] == [
        ("numpy", "1"),
        ("numpy", "2"),
        ("cupy", "1"),
        ("cupy", "2"),
    ]
    for row in rows:
        assert (row["method"], row["half_width"], row["cells"]) == ("adp", "5.0", "200")
        assert row["seconds"] or row["reason"]
    assert float(rows[0]["peak_mib"]) > 20
    assert rows[0]["peer_seconds"] or "torch" in rows[0]["reason"]
    assert bool(rows[0]["ratio"]) == bool(rows[0]["peer_seconds"])
    assert [path.name for path in table.parent.iterdir()] == ["table.csv"]


def test_a_peer_that_does_not_fit_in_memory_is_not_started(script, monkeypatch):
    monkeypatch.setattr(script, "_available_mib", lambda: 1000.0)
    monkeypatch.setattr(script, "_measure", lambda *_, **__: pytest.fail("started"))
    found = script._peer({"cells": 60000, "stacked": 10000}, sys.executable, 2)
    assert found == {"reason": "the dense peer needs about 9155 MiB and 1000 are available"}


def test_a_failed_measurement_gives_its_last_line(script):
    found = script._measure(sys.executable, {"who": "numpy"}, threads=1)
    assert found == {"reason": "KeyError: 'half_width'"}
