"""The benchmark of accountants writes a full table whether or not the peers are installed."""

from __future__ import annotations

import csv
import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "benchmark_accountants.py"


@pytest.fixture
def benchmark():
    spec = importlib.util.spec_from_file_location("benchmark_accountants", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(benchmark, tmp_path):
    arguments = {
        "compositions": [2],
        "half_width": 20.0,
        "cells": 400,
        "sigma": 4.0,
        "sampling_rate": 0.1,
        "epsilon": 0.3,
        "buckets": 5000,
        "timeout": 120.0,
        "peer_python": sys.executable,
    }
    path = tmp_path / "new" / "table.csv"
    benchmark.main(str(path), **arguments)
    with open(path) as file:
        return list(csv.DictReader(file))


def test_every_accountant_has_a_row_for_every_pair(benchmark, tmp_path):
    rows = run(benchmark, tmp_path)
    assert [(r["pair"], r["order"]) for r in rows[::3]] == [
        ("additive", "A/B"),
        ("subsampled", "A/B"),
        ("subsampled", "B/A"),
    ]
    assert [r["method"] for r in rows] == list(benchmark.METHODS) * 3
    for row in rows:
        if row["method"] == "optnoise":
            assert 0 <= float(row["delta_lower"]) <= float(row["delta_upper"]) and row["valid"] == "True"
            assert float(row["cpu_seconds"]) > 0 and not row["reason"]
        else:
            assert row["reason"] or row["delta_upper"]


def test_a_missing_interpreter_is_a_reason(benchmark, tmp_path):
    assert "none" in benchmark._in_own_process(str(tmp_path / "none"), {}, timeout=1.0)["reason"]
