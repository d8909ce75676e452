"""Evaluate one noise file: lower and upper deltas in both orders, to one table."""

import argparse
import json
from pathlib import Path

from optnoise.progress import job


def main(path_noise: str, spec: str, path_table: str, path_log: str) -> None:
    """``spec``: a run's evaluation spec as JSON (optnoise.plan); reads ``path_noise``, writes ``path_table``."""
    with job(f"evaluate {'/'.join(Path(path_noise).with_suffix('').parts[-2:])}", path_log) as report:
        from optnoise.evaluation import evaluate
        from optnoise.storage import EVALUATION_COLUMNS, load_noise, write_table

        # All rows before the file is begun: a job that is killed leaves nothing half-written.
        rows = list(evaluate(load_noise(path_noise), json.loads(spec), progress=report))
        write_table(path_table, EVALUATION_COLUMNS, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("noise", "spec", "table", "log"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    main(given.noise, given.spec, given.table, given.log)
