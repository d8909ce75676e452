"""What goes wrong on one machine: a clear message, no half-written file taken for a whole one, nothing redone."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from repository import Workflow, copy_repository

from optnoise.storage import DamagedFile, NoiseFile, load_noise, save_noise

pytestmark = pytest.mark.workflow

NOISE = "results/noise/gaussian/all.npz"
TABLE = "results/evaluation/gaussian/all.csv"
TRAINED = "results/noise/stairs_adp/r5.npz"


# --- Processes ----------------------------------------------------------------------------------------------------


def start(workflow: Workflow, log: Path, *arguments: str) -> subprocess.Popen:
    """Start Snakemake on the tiny configuration; what it prints goes to ``log``."""
    command = [sys.executable, "-m", "snakemake", *arguments, "--cores", "1", "--configfile", "tests/tiny/config.yaml"]
    environment = {**os.environ, "COLUMNS": "200"}
    with open(log, "w") as stream:
        return subprocess.Popen(command, cwd=workflow.folder, env=environment, stdout=stream, stderr=subprocess.STDOUT)


def scripts_running(workflow: Workflow, script: str = "") -> list[int]:
    """Processes that run one of this repository's scripts."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes().split(b"\0")
            here = os.readlink(folder / "cwd") == str(workflow.folder)
            if here and len(command) > 1 and command[1].decode().startswith(f"scripts/{script}"):
                found.append(int(folder.name))
    return found


def wait_for(done: Callable[[], object], process: subprocess.Popen, log: Path, seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert process.poll() is None and time.monotonic() < end, log.read_text()[-6000:]
        time.sleep(0.02)


def finish(process: subprocess.Popen, log: Path) -> tuple[int, str]:
    """The exit status of a run, and what it printed."""
    try:
        return process.wait(timeout=300), log.read_text()
    finally:
        process.kill()


def leftovers(workflow: Workflow) -> list[Path]:
    """Half-written files."""
    return [path for path in (workflow.folder / "results").rglob("*") if path.is_file() and path.suffix == ".part"]


# --- Killed -------------------------------------------------------------------------------------------------------


def kill_job(workflow: Workflow, target: str, script: str, begun: Callable[[], bool]) -> str:
    """Start a run, kill its job once it has begun; what the run printed."""
    log = workflow.folder / "printed.txt"
    process = start(workflow, log, target)
    wait_for(lambda: begun() and scripts_running(workflow, script), process, log)
    for job in scripts_running(workflow, script):
        os.kill(job, signal.SIGKILL)
    status, printed = finish(process, log)
    assert status == 1
    assert "killed from outside the workflow" in printed
    return printed


def test_killed_training(bare: Workflow) -> None:
    bare.edit("config.yaml", "    epochs: 15000\n", "    epochs: 1500\n")
    bare.edit("tests/tiny/config.yaml", "optimiser: lbfgs", "optimiser: adam")
    log = bare.folder / "logs/train/stairs_adp/r5.log"
    printed = kill_job(bare, TRAINED, "train.py", lambda: log.exists() and "/1500 loss" in log.read_text())
    assert "logs/train/stairs_adp/r5.log" in printed
    assert not (bare.folder / TRAINED).exists() and not leftovers(bare)
    bare.run("--", TRAINED)
    assert load_noise(bare.folder / TRAINED).meta["epochs"] == [1500]
    assert not bare.planned("--", TRAINED)


def slow_evaluation(workflow: Workflow) -> None:
    """An evaluation of seconds, to have time to disturb it."""
    workflow.edit("tests/tiny/config.yaml", "evaluation_buckets: 2000", "evaluation_buckets: 100000")


def evaluating(workflow: Workflow) -> bool:
    """Whether the evaluation of ``TABLE`` is in the midst of its cases."""
    log = workflow.folder / "logs/evaluate/gaussian/all.log"
    return bool(log.exists() and "/48" in log.read_text() and scripts_running(workflow, "evaluate.py"))


def test_killed_evaluation(bare: Workflow) -> None:
    slow_evaluation(bare)
    printed = kill_job(bare, TABLE, "evaluate.py", lambda: evaluating(bare))
    assert "logs/evaluate/gaussian/all.log" in printed
    assert not (bare.folder / TABLE).exists() and not leftovers(bare)
    assert bare.planned("--", TABLE) == {"evaluate": 1}
    bare.run("--", TABLE)
    assert not bare.planned("--", TABLE)


def test_killed_snakemake(bare: Workflow) -> None:
    """And its job with it, as when the power fails."""
    slow_evaluation(bare)
    log = bare.folder / "printed.txt"
    process = start(bare, log, TABLE)
    wait_for(lambda: evaluating(bare), process, log)
    process.kill()
    for job in scripts_running(bare):
        os.kill(job, signal.SIGKILL)
    finish(process, log)
    made = (bare.folder / NOISE).stat().st_mtime_ns
    assert not (bare.folder / TABLE).exists()

    printed = bare.run("--", TABLE, check=False)
    assert "Directory cannot be locked" in printed and "--unlock" in printed
    bare.run("--unlock", "--", TABLE)
    bare.run("--", TABLE)
    assert (bare.folder / NOISE).stat().st_mtime_ns == made
    assert not bare.planned("--", TABLE)


def test_killed_while_writing(tmp_path: Path) -> None:
    """What was there stays whole; what was not there is not there."""
    (tmp_path / "old.txt").write_text("whole\n")
    script = "import os, signal, sys; from optnoise.storage import atomic\n"
    script += "with atomic(sys.argv[1]) as path:\n"
    script += "    path.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)\n"
    for name in ("old.txt", "new.txt"):
        done = subprocess.run([sys.executable, "-c", script, str(tmp_path / name)], timeout=60)
        assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "old.txt").read_text() == "whole\n"
    assert not (tmp_path / "new.txt").exists()


# --- Disks --------------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(bare: Workflow) -> Iterator[Path]:
    """A small disk of its own for results and logs."""
    folder = bare.folder / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        for name in ("results", "logs"):
            (folder / name).mkdir()
            (bare.folder / name).symlink_to(folder / name)
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_full_disk(bare: Workflow, disk: Path) -> None:
    small, large = "results/noise/geng_uniform/parameter0.1.npz", NOISE
    bare.run("--", small)
    made = (bare.folder / small).stat().st_mtime_ns
    with contextlib.suppress(OSError), open(disk / "filler", "wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))
    printed = bare.run("--", small, large, check=False)
    assert "analytic gaussian/all: failed: [Errno 28] No space left on device" in printed
    assert not (bare.folder / large).exists() and not leftovers(bare)

    (disk / "filler").unlink()
    assert bare.planned("--", small, large) == {"analytic": 1}
    bare.run("--", small, large)
    load_noise(bare.folder / large)
    assert (bare.folder / small).stat().st_mtime_ns == made


def test_read_only_results(bare: Workflow, disk: Path) -> None:
    bare.run("--", NOISE)
    made = (bare.folder / NOISE).stat().st_mtime_ns
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    printed = bare.run("--", TABLE, check=False)
    assert re.search("Read-only file system: '.*(results|logs)/", printed)
    assert "Traceback" not in printed

    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    assert bare.planned("--", TABLE) == {"evaluate": 1}
    bare.run("--", TABLE)
    assert (bare.folder / NOISE).stat().st_mtime_ns == made


# --- Damaged files ------------------------------------------------------------------------------------------------


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def overwritten(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes(64) + content[middle + 64 :]


def empty(content: bytes) -> bytes:
    return b""


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """A repository with a frontier, and a noise that has nothing to do with it."""
    workflow = copy_repository(tmp_path_factory.mktemp("evaluated") / "repository")
    workflow.run("--", *DAMAGED_TARGETS)
    return workflow


DAMAGED_TARGETS = (NOISE, TABLE, "results/frontier/gaussian.csv", "results/noise/geng_uniform/parameter0.1.npz")


@pytest.mark.parametrize(
    ("path", "damage", "reader", "repair"),
    [
        (NOISE, cut, "evaluate gaussian/all", {"analytic": 1, "evaluate": 1, "reduce": 1}),
        (TABLE, cut, "reduce gaussian", {"evaluate": 1, "reduce": 1}),
    ],
)
def test_damaged_file(
    evaluated: Workflow, path: str, damage: Callable[[bytes], bytes], reader: str, repair: dict[str, int]
) -> None:
    """The message names the file and what to do; then the file and what was made of it are made again."""
    file = evaluated.folder / path
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    printed = evaluated.run("--", *DAMAGED_TARGETS, check=False)
    assert re.search(f"{reader}: failed: {path}: not a .*; delete that file, and the next run makes it again", printed)
    file.unlink()
    assert evaluated.planned("--", *DAMAGED_TARGETS) == repair
    evaluated.run("--", *DAMAGED_TARGETS)
    assert file.read_bytes() == whole
    assert not evaluated.planned("--", *DAMAGED_TARGETS)


@pytest.mark.parametrize("damage", [cut, overwritten, empty])
def test_damaged_noise_is_not_read(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    file = tmp_path / "noise.npz"
    save_noise(file, NoiseFile(np.arange(100.0), np.full((1, 100), 0.01), np.ones(1)))
    load_noise(file)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DamagedFile, match=r"noise\.npz: not a readable noise file"):
        load_noise(file)


# --- Meanwhile ----------------------------------------------------------------------------------------------------


def test_two_runs_at_once_and_a_config_edited_meanwhile(bare: Workflow) -> None:
    """The second run is turned away; the first goes on with the config that it began with."""
    other = "results/noise/geng_uniform/parameter0.1.npz"
    bare.run("--", other)
    slow_evaluation(bare)
    log = bare.folder / "printed.txt"
    process = start(bare, log, TABLE)
    wait_for(lambda: evaluating(bare), process, log)
    jobs = scripts_running(bare, "evaluate.py")
    for job in jobs:  # held until the second run has had its answer
        os.kill(job, signal.SIGSTOP)
    bare.edit("tests/tiny/config.yaml", "baseline_points: 12", "baseline_points: 3")
    printed = bare.run("--", TABLE, check=False)
    for job in jobs:
        os.kill(job, signal.SIGCONT)
    assert "Directory cannot be locked" in printed, printed
    status, first = finish(process, log)
    assert status == 0, first
    assert len(load_noise(bare.folder / NOISE).p) == 12

    assert bare.planned("--", TABLE, other) == {"analytic": 1, "evaluate": 1}
    bare.run("--", TABLE, other)
    assert len(load_noise(bare.folder / NOISE).p) == 3
    bare.edit("tests/tiny/config.yaml", "baseline_points: 3", "baseline_points: 12")
    assert bare.planned("--", TABLE, other) == {"analytic": 1, "evaluate": 1}


# --- Memory -------------------------------------------------------------------------------------------------------


def test_out_of_memory(bare: Workflow) -> None:
    """A job whose memory is limited, as by a batch system that refuses more."""
    bare.edit("tests/tiny/config.yaml", "sweep: 800,", "sweep: 800000,")
    limits = bare.folder / "src/sitecustomize.py"
    limits.write_text(
        "import resource, sys\n"
        "if 'scripts/analytic.py' in sys.orig_argv:\n"
        "    resource.setrlimit(resource.RLIMIT_DATA, (200_000_000, 200_000_000))\n"
    )
    printed = bare.run("--", NOISE, check=False)
    assert re.search(
        r"analytic gaussian/all: failed: Unable to allocate .* \(log: logs/analytic/gaussian/all.log\)", printed
    )
    assert "MemoryError" in (bare.folder / "logs/analytic/gaussian/all.log").read_text()
    assert not (bare.folder / NOISE).exists() and not leftovers(bare)
    limits.unlink()
    bare.run("--", NOISE)
    assert load_noise(bare.folder / NOISE).p.shape == (12, 800_000)
    assert not bare.planned("--", NOISE)
