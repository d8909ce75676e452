"""The workflow through the Slurm profile on a real Slurm: results, GPUs, retries, a kill, a config edited meanwhile."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from repository import Workflow, copy_repository
from slurm_cluster import Cluster, cluster, missing

pytestmark = [pytest.mark.slurm, pytest.mark.workflow]

TARGETS = ("ext_range", "fig7")  # every kind of job but matched noise
# What training would put on a GPU, in few epochs. ``auto`` takes the GPU that is there, here none but in name.
SIZES = """\
backend: auto
sizes: {optimiser: adam}
experiments: {range_adp: {epochs: 60}}
"""
# A toy has no accounts and no database, and answers at once.
TOY = ("--slurm-no-account", "--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "1")
TOY += ("--seconds-between-status-checks", "1")


@dataclass(frozen=True)
class Remote:
    """A repository whose Snakemake sends its jobs to a cluster."""

    slurm: Cluster
    folder: Path

    def start(self, log: Path, *arguments: str) -> subprocess.Popen:
        """Start ``snakemake --profile profiles/slurm``; it writes to ``log``."""
        configs = ("--configfile", "tests/tiny/config.yaml", "sizes.yaml")
        command = [sys.executable, "-m", "snakemake", "--profile", "profiles/slurm", *TOY, *arguments, *configs]
        with open(log, "w") as stream:
            return subprocess.Popen(
                self.slurm.command(command, self.folder), stdout=stream, stderr=subprocess.STDOUT, env=environment()
            )

    def run(self, *arguments: str, status: int = 0, on_submission: Callable[[], object] | None = None) -> str:
        """Run to the end, and return what was printed; ``on_submission`` is called once jobs are on their way."""
        log = self.folder / "printed.txt"
        with self.start(log, *arguments) as process:
            try:
                while on_submission and process.poll() is None:
                    if "has been submitted" in log.read_text():
                        on_submission()
                        on_submission = None
                    time.sleep(0.1)
                assert process.wait(timeout=900) == status, log.read_text()[-8000:]
            finally:
                process.kill()
        return log.read_text()


def environment() -> dict[str, str]:
    """The tests' own environment, without what their processors' number would be to jobs."""
    return {**os.environ, "COLUMNS": "200"}


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    problem = missing()
    if problem:
        pytest.skip(problem)
    with cluster(tmp_path_factory.mktemp("slurm") / "cluster") as running:
        yield running


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """The same run without a cluster."""
    workflow = copy_repository(tmp_path_factory.mktemp("local") / "repository")
    (workflow.folder / "sizes.yaml").write_text(SIZES)
    workflow.run(*TARGETS, "--configfile", "tests/tiny/config.yaml", "sizes.yaml", config=None)
    return workflow


@dataclass(frozen=True)
class Killed:
    """A run on the cluster that was killed, and one that went on to the end."""

    remote: Remote
    first: str
    second: str
    finished: dict[Path, int]  # files that the first run had finished, with their times


@pytest.fixture(scope="module")
def killed(slurm: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    folder = copy_repository(tmp_path_factory.mktemp("remote") / "repository").folder
    (folder / "sizes.yaml").write_text(SIZES)
    remote = Remote(slurm, folder)
    log = folder / "killed.txt"
    with remote.start(log, *TARGETS) as process:
        end = time.monotonic() + 900
        while len(re.findall("Finished jobid", log.read_text())) < 3:
            assert process.poll() is None and time.monotonic() < end, log.read_text()[-8000:]
            time.sleep(0.2)
        process.send_signal(signal.SIGKILL)  # sh and nsenter have become Snakemake
    first = log.read_text()
    finished = {path: path.stat().st_mtime_ns for path in (folder / "results/noise").rglob("*.npz")}
    # As docs/cluster.md says: end what the killed run left in the queue, unlock, start again.
    slurm.run("scancel", f"--name={re.search('SLURM run ID: (.+)', first)[1].strip()}")
    remote.run("--unlock")
    # The evaluations are on their way, and would come out otherwise if they read what is written here.
    sizes = folder / "sizes.yaml"
    second = remote.run(
        *TARGETS, on_submission=lambda: sizes.write_text(SIZES.replace("adam", "adam, evaluation_buckets: 50"))
    )
    assert "evaluation_buckets" in sizes.read_text()
    sizes.write_text(SIZES)
    return Killed(remote, first, second, finished)


def test_finishes_after_a_kill_without_redoing_finished_work(killed: Killed) -> None:
    assert len(killed.finished) == 3
    for path, time_ns in killed.finished.items():
        assert path.stat().st_mtime_ns == time_ns, f"{path} was made again"
    assert not re.search("Training|Computing the analytic noise", killed.second)
    for target in TARGETS:
        assert (killed.remote.folder / f"results/figures/{target}.png").exists()


def test_same_data_as_a_local_run_though_the_config_was_edited(killed: Killed, local: Workflow) -> None:
    made = {path.relative_to(local.folder) for path in (local.folder / "results").rglob("*") if path.is_file()}
    endings = {path.suffix for path in made}
    assert {".npz", ".csv", ".png", ".pdf", ".md"} <= endings
    for path in made:
        ours, theirs = killed.remote.folder / path, local.folder / path
        if path.suffix == ".npz":  # its meta holds the seconds that training took
            with np.load(ours) as a, np.load(theirs) as b:
                assert set(a.files) == set(b.files)
                assert all(a[name].tobytes() == b[name].tobytes() for name in a.files if name != "meta"), path
        else:
            assert ours.read_bytes() == theirs.read_bytes(), path


def test_training_asks_for_a_gpu_and_nothing_else_does(killed: Killed) -> None:
    gpus: dict[str, set[str]] = {}
    for job in killed.remote.slurm.jobs():
        if Path(job["WorkDir"]) == killed.remote.folder:
            rule = re.match(r"rule_([^_]+(_[^_]+)?)(_wildcards|$)", job["Comment"])[1]
            gpus.setdefault(rule, set()).add(job.get("TresPerJob", "none"))
    assert gpus.pop("train") == {"gres:gpu:1"}
    assert set(gpus) == {"analytic", "evaluate", "reduce", "ext_range", "fig7"}
    assert all(asked == {"none"} for asked in gpus.values())


def test_a_failing_job_is_retried_with_more_and_reported_with_its_log(killed: Killed) -> None:
    remote = killed.remote
    script = remote.folder / "scripts/reduce.py"
    text = script.read_text()
    assert "        import pandas as pd\n" in text
    script.write_text(text.replace("import pandas as pd\n", "raise ValueError('told to fail')\n", 1))
    printed = remote.run("results/frontier/gaussian.csv", "--retries", "1", status=1)
    assert "Trying to restart job" in printed
    assert "reduce gaussian: failed: told to fail (log: logs/reduce/gaussian.log)" in printed
    assert "ValueError: told to fail" in (remote.folder / "logs/reduce/gaussian.log").read_text()
    jobs = [job for job in remote.slurm.jobs() if Path(job["WorkDir"]) == remote.folder]
    jobs = sorted((job for job in jobs if "rule_reduce" in job["Comment"]), key=lambda job: int(job["JobId"]))
    first, second = jobs[-2:]
    assert (first["JobState"], second["JobState"]) == ("FAILED", "FAILED")
    assert (first["MinMemoryNode"], second["MinMemoryNode"]) == ("1000M", "2000M")
    assert (first["TimeLimit"], second["TimeLimit"]) == ("00:10:00", "00:20:00")
