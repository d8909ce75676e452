"""A copy of the repository that tests run Snakemake in, and a way to count the jobs it would run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    "Snakefile",
    "config.yaml",
    "config.schema.yaml",
    "matplotlibrc",
    "requirements.lock",
    "config",
    "rules",
    "profiles",
    "envs",
    "scripts",
    "src",
    "tests/tiny",
)


@dataclass(frozen=True)
class Workflow:
    """A repository in ``folder`` and how to run Snakemake in it, on the tiny configuration."""

    folder: Path

    def run(self, *arguments: str, check: bool = True, config: str | None = "tests/tiny/config.yaml") -> str:
        """Run Snakemake and return what it printed; an exit status other than 0 fails the test if ``check``."""
        command = [sys.executable, "-m", "snakemake", "--cores", "2"]
        command += ["--configfile", config] if config else []
        environment = {**os.environ, "PYTHONPATH": str(self.folder / "src"), "COLUMNS": "200"}
        done = subprocess.run(
            [*command, *arguments], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=600
        )
        output = done.stdout + done.stderr
        assert done.returncode == 0 or not check, output[-6000:]
        return output

    def planned(self, *targets: str, **options: str | None) -> Counter[str]:
        """How many jobs of each rule a run would start now."""
        output = self.run("--dry-run", *targets, **options)
        table = re.search(r"Job stats:\n.*?\n-[- ]+\n(.*?)\n\n", output, re.S)
        if table is None:
            assert "Nothing to be done" in output, output
            return Counter()
        jobs = Counter({name: int(count) for name, count in map(str.split, table[1].splitlines())})
        del jobs["total"]
        return jobs

    def planned_outputs(self, *targets: str) -> set[str]:
        """The files that a run would write now."""
        rows = (line.split("\t") for line in self.run("--summary", "--", *targets).splitlines())
        return {row[0] for row in rows if len(row) > 5 and row[-1] == "update pending"}

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace ``old``, which must be there, in a file of the repository."""
        file = self.folder / path
        text = file.read_text()
        assert old in text, f"{old!r} is not in {path}"
        file.write_text(text.replace(old, new, 1))


def copy_repository(folder: Path) -> Workflow:
    """Copy what a run needs, without results."""
    for name in COPIED:
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.pyc", "*.egg-info"))
        else:
            shutil.copy2(source, target)
    return Workflow(folder)
