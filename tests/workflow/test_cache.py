"""Trained noise between checkouts: what one has trained, another takes from the cache."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from repository import copy_repository

pytestmark = pytest.mark.workflow


def test_trained_noise_is_shared_and_nothing_else_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("SNAKEMAKE_OUTPUT_CACHE", str(tmp_path / "cache"))
    noise, other = "results/noise/stairs_adp/r5.npz", "results/noise/range_adp/r15.npz"
    first, second = (copy_repository(tmp_path / name) for name in ("first", "second"))
    first.run("--cache", "--", noise)
    second.run("--cache", "--", noise, other)
    # The seconds that training took are in the file: equal bytes were trained once.
    assert (second.folder / noise).read_bytes() == (first.folder / noise).read_bytes()
    assert json.loads(str(np.load(second.folder / other)["meta"]))["spec"]["half_width"] == 15
    assert not second.planned("--cache", "--", noise, other)

    second.edit("tests/tiny/config.yaml", "stairs: 8", "stairs: 7")
    second.run("--cache", "--", noise)
    assert (second.folder / noise).read_bytes() != (first.folder / noise).read_bytes()
