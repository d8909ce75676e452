"""Compute the impossible region of one utility loss: for each n and utility, a delta that no noise goes below."""

import argparse
import json

from optnoise.progress import job


def main(spec: str, path_table: str, path_log: str) -> None:
    """``spec``: a problem as JSON (config: ``certificates``), widths in units of the query; writes ``path_table``."""
    wanted = json.loads(spec)
    with job(f"certify {wanted['loss']}", path_log) as report:
        from optnoise.envelope_programs import Problem
        from optnoise.lower_bounds import impossible_region
        from optnoise.storage import write_table

        problem = Problem(wanted["half_width"], wanted["sensitivity"], wanted["loss"])
        power = 1 if wanted["loss"] == "l1" else 2
        found = impossible_region(
            problem,
            [width**power for width in wanted["widths"]],
            epsilon=wanted["epsilon"],
            compositions=wanted["compositions"],
            programs=wanted["programs"],
            nodes=wanted["nodes"],
            progress=report,
        )
        rows = [
            [wanted["loss"], n, wanted["epsilon"], width, float(lower)]
            for width, bounds in zip(wanted["widths"], found, strict=True)
            for n, lower in zip(wanted["compositions"], bounds, strict=True)
        ]
        write_table(path_table, ["loss", "n", "eps", "utility", "delta_lower"], rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("spec", "table", "log"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    main(given.spec, given.table, given.log)
