"""Measure a dry run of the paper preset, and one with ten times its experiments.

Usage: ``python tests/workflow/measure_dry_run.py``.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import yaml
from repository import copy_repository

COPIES = 10


def multiply(path: Path) -> None:
    """Give every experiment nine copies under other names, which the same figures read too."""
    config = yaml.safe_load(path.read_text())

    def names(name: str) -> list[str]:
        return [name, *(f"{name}_copy{number}" for number in range(1, COPIES))]

    experiments = {}
    for name, experiment in config["experiments"].items():
        for number, copy in enumerate(names(name)):
            experiments[copy] = dict(experiment)
            if "source" in experiment:
                experiments[copy]["source"] = names(experiment["source"])[number]
    config["experiments"] = experiments
    for reads in config["figures"].values():
        for kind in {"noise", "evaluation", "frontier"} & set(reads):
            reads[kind] = [copy for name in reads[kind] for copy in names(name)]
    path.write_text(yaml.safe_dump(config, sort_keys=False))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        workflow = copy_repository(Path(folder) / "repository")
        for title in ("paper preset", f"{COPIES} x its experiments"):
            start = time.monotonic()
            jobs = workflow.planned(config="config/paper.yaml")
            print(f"{title}: {sum(jobs.values())} jobs, dry run in {time.monotonic() - start:.1f} s", flush=True)
            multiply(workflow.folder / "config.yaml")


if __name__ == "__main__":
    main()
