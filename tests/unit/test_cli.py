"""The command line: tables and JSON on standard output, one line and exit status 2 on bad input."""

from __future__ import annotations

import csv
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from optnoise.accounting import delta_bounds
from optnoise.baselines import truncated_gaussian
from optnoise.cli import _text, main
from optnoise.grid import Grid
from optnoise.mechanism import Mechanism
from optnoise.pairs import additive_pair
from optnoise.storage import NoiseFile, save_noise

GRID = Grid(20, 400)
NOISE = truncated_gaussian(GRID, 4.0)


def write_csv(path: Path, **columns: object) -> Path:
    with open(path, "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


@pytest.fixture
def noise_csv(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "noise.csv", x=GRID.centres.tolist(), p=NOISE.tolist())


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    main([str(argument) for argument in arguments])
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line on standard error of a command that must exit with status 2 and print no result."""
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    output = capsys.readouterr()
    assert stopped.value.code == 2 and output.out == "" and output.err.count("\n") == 1
    return output.err.rstrip()


def test_account_gives_the_evaluators_bounds(noise_csv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(run(capsys, "account", noise_csv, "--epsilon", 0.3, 1, "--compositions", 16, "--json"))
    expected = delta_bounds(*additive_pair(NOISE, GRID), [0.3, 1.0], compositions=16)
    assert [row["order"] for row in rows] == ["A/B", "A/B", "B/A", "B/A"]
    assert [row["delta_upper"] for row in rows[:2]] == expected.upper.tolist()
    assert [row["delta_lower"] for row in rows[:2]] == expected.lower.tolist()


def test_account_reads_the_same_noise_from_every_form(tmp_path: Path, noise_csv: Path, capsys) -> None:
    save_noise(tmp_path / "n.npz", NoiseFile(GRID.centres, NOISE[None], np.ones(1)))
    bare = write_csv(tmp_path / "bare.csv", p=NOISE.tolist())
    outputs = {
        run(capsys, "account", path, "--epsilon", 0.5, *more)
        for path, more in ((noise_csv, ()), (tmp_path / "n.npz", ()), (bare, ("--half-width", 20)))
    }
    assert len(outputs) == 1


def test_account_inverts_delta(noise_csv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = json.loads(run(capsys, "account", noise_csv, "--delta", 0.01, "--json"))[0]
    at = delta_bounds(*additive_pair(NOISE, GRID), [row["epsilon_lower"], row["epsilon_upper"]])
    assert at.lower[1] <= 0.01 <= at.upper[0]


def test_account_says_inf_below_the_floor_of_distinguishing_events(noise_csv: Path, capsys) -> None:
    row = json.loads(run(capsys, "account", noise_csv, "--delta", 1e-12, "--json"))[0]
    assert row["epsilon_upper"] == "inf"


def test_table_rounds_bounds_outwards() -> None:
    assert _text("delta_upper", 0.123456781) == "0.12345679"
    assert _text("delta_lower", 0.123456789) == "0.12345678"
    assert _text("epsilon_upper", float("inf")) == "inf"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--epsilon", "-1"), "epsilon: [-1.0] is not allowed"),
        (("--epsilon", "1", "--compositions", "0"), "compositions: 0 is not allowed"),
        (("--epsilon", "1", "--pair", "subsampled"), "q: missing; the subsampled pair needs a sampling rate in (0, 1]"),
        (
            ("--epsilon", "1", "--pair", "subsampled", "--q", "1.5"),
            "q: 1.5 is not allowed; the sampling rate must be",
        ),
        (("--epsilon", "1", "--q", "0.5"), "q: 0.5 is not allowed; only the subsampled pair has a sampling rate"),
        (("--delta", "0.1", "--kind", "pdp"), "kind: 'pdp' is not allowed with --delta; choose adp"),
        (("--epsilon", "1", "--half-width", "5"), "half_width: 5.0 is not allowed"),
        (
            ("--epsilon", "1", "--sensitivity", "0.33"),
            "sensitivity: 0.33 is not allowed; it must be a whole number of spacings, and masses in",
        ),
    ],
)
def test_account_refuses_bad_options(noise_csv: Path, capsys, arguments: tuple[str, ...], line: str) -> None:
    assert refused(capsys, "account", noise_csv, *arguments).startswith(f"optnoise account: {line}")


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ({"p": [0.5, 0.6]}, "the masses of noise 0 sum to 1.1; they must sum to 1 within 1e-09"),
        ({"p": [1.5, -0.5]}, "mass 1 of noise 0 is -0.5; masses must be at least 0"),
        ({"p": ["nan", 1]}, "mass 0 of noise 0 is nan; masses must be finite"),
        ({"p": ["one", 1]}, "line 2: p is 'one'; it must be a number"),
        ({"q": [0.5, 0.5]}, "has no column p (masses) or weight (integers)"),
        ({"weight": [0.5, 0.5]}, "weights must be whole numbers from 0 to 2^53, not all 0"),
        ({"x": [0, 1, 3], "p": [0.25, 0.5, 0.25]}, "x is not evenly spaced, in rising order"),
        ({"x": [1, 0], "p": [0.5, 0.5]}, "x is not evenly spaced, in rising order"),
        ({"x": [0], "p": [1]}, "has 1 value; a noise has at least 2"),
        ({"x": [0, "inf"], "p": [0.5, 0.5]}, "x holds values that are not finite"),
    ],
)
def test_account_refuses_bad_files(tmp_path: Path, capsys, columns: dict, line: str) -> None:
    path = write_csv(tmp_path / "n.csv", **columns)
    more = () if "x" in columns else ("--half-width", "1")
    assert refused(capsys, "account", path, "--epsilon", "1", *more).startswith(f"optnoise account: {path}: {line}")


def test_account_takes_noise_on_the_integers(tmp_path: Path, capsys) -> None:
    """Discrete Laplace on -100..100, and anywhere else; delta at one release as an exact sum."""
    weights = [Fraction(9, 10) ** abs(i) for i in range(-100, 101)]
    masses = [float(weight / sum(weights)) for weight in weights]
    shifted = zip([*masses, 0.0], [0.0, *masses], strict=True)
    exact = float(sum(max(Fraction(0), Fraction(a) - Fraction(math.exp(0.05)) * Fraction(b)) for a, b in shifted))
    for first in (-100, 7):
        path = write_csv(tmp_path / "laplace.csv", x=[*range(first, first + 201)], p=masses)
        main(["account", str(path), "--epsilon", "0.05", "--json"])
        for row in json.loads(capsys.readouterr().out):
            assert row["delta_lower"] <= exact * (1 + 1e-12) and exact * (1 - 1e-12) <= row["delta_upper"]
            assert row["delta_upper"] - row["delta_lower"] < 1e-9 * exact


def test_account_refuses_a_subsampled_noise_that_is_not_symmetric(tmp_path: Path, capsys) -> None:
    path = write_csv(tmp_path / "n.csv", x=[0, 1, 2], p=[0.2, 0.5, 0.3])
    main(["account", str(path), "--epsilon", "1"])
    capsys.readouterr()
    line = refused(capsys, "account", path, "--epsilon", "1", "--pair", "subsampled", "--q", "0.1")
    assert line.startswith(f"optnoise account: {path}: not symmetric; the subsampled pair would say nothing")


def test_account_needs_a_grid(tmp_path: Path, capsys) -> None:
    path = write_csv(tmp_path / "n.csv", p=[0.5, 0.5])
    assert "has no column x; give the grid with --half-width" in refused(capsys, "account", path, "--epsilon", "1")


@pytest.mark.parametrize("keep", [0, 10, 200])
def test_account_refuses_a_cut_npz(tmp_path: Path, capsys, keep: int) -> None:
    path = tmp_path / "n.npz"
    save_noise(path, NoiseFile(GRID.centres, NOISE[None], np.ones(1)))
    path.write_bytes(path.read_bytes()[:keep])
    assert f"{path}: not a readable noise file" in refused(capsys, "account", path, "--epsilon", "1")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("p,p\n0.5,0.5\n", "has 2 columns p; it must have one"),
        ("x,p\n-0.5,0.5\n0.5\n", "line 3: not as many values as the header has columns, 2"),
        ("p\n0.5,0.5\n", "line 2: not as many values as the header has columns, 1"),
        ("p\n", "has no column p (masses) or weight (integers) with values below a header"),
        ("", "has no column p (masses) or weight (integers) with values below a header"),
    ],
)
def test_account_refuses_a_ragged_table(tmp_path: Path, capsys, text: str, line: str) -> None:
    path = tmp_path / "n.csv"
    path.write_text(text)
    refusal = refused(capsys, "account", path, "--epsilon", "1", "--half-width", "1")
    assert refusal == f"optnoise account: {path}: {line}"


def test_account_refuses_an_archive_without_noise(tmp_path: Path, capsys) -> None:
    path = tmp_path / "n.npz"
    np.savez(path, x=np.zeros(4), p=np.zeros((0, 4)))
    assert "p has shape (0, 4); a noise file holds at least one noise" in refused(
        capsys, "account", path, "--epsilon", "1"
    )
    with open(path, "wb") as stream:
        np.save(stream, NOISE)
    assert "it is a single array, .npy, not an archive" in refused(capsys, "account", path, "--epsilon", "1")


def test_account_refuses_a_missing_file(tmp_path: Path, capsys) -> None:
    assert "no such file" in refused(capsys, "account", tmp_path / "none.npz", "--epsilon", "1")
    assert "must end in .csv or .npz" in refused(capsys, "account", tmp_path / "none.txt", "--epsilon", "1")


def test_sample_prints_noise_and_sums(tmp_path: Path, capsys) -> None:
    Mechanism.from_masses(NOISE, GRID).save(tmp_path / "m")
    drawn = [float(line) for line in run(capsys, "sample", tmp_path / "m.json", "--size", 50).split()]
    assert len(drawn) == 50
    assert np.abs(np.subtract.outer(drawn, GRID.centres)).min(axis=1).max() < 1e-12
    sums = json.loads(run(capsys, "sample", tmp_path / "m.json", "--value", "100", "--size", 3, "--json"))
    assert all(abs(Fraction(text) - 100) < 20 for text in sums)
    assert "is no multiple of the cell width 1/10" in refused(capsys, "sample", tmp_path / "m.json", "--value", "0.01")
    assert float(run(capsys, "sample", tmp_path / "m.json", "--value", "0.01", "--round"))
    assert "size: -1 is not allowed" in refused(capsys, "sample", tmp_path / "m.json", "--size", "-1")


def test_info_names_versions_and_files(tmp_path: Path, capsys) -> None:
    assert "backend" in json.loads(run(capsys, "info", "--json"))
    Mechanism.from_masses(NOISE, GRID, card={"name": "mine"}).save(tmp_path / "m")
    assert "name: mine" in run(capsys, "info", tmp_path / "m.json")
    save_noise(tmp_path / "n.npz", NoiseFile(GRID.centres, NOISE[None], np.ones(1)))
    assert json.loads(run(capsys, "info", tmp_path / "n.npz", "--json"))["cells"] == 400
