"""Compute the impossible region of one utility loss: for each n and utility, a delta that no noise goes below."""

import argparse
import json

from optnoise.progress import job


def main(spec: str, path_table: str, path_log: str) -> None:
    """``spec``: a problem as JSON (config: ``certificates``), widths in units of the query; writes ``path_table``."""
    wanted = json.loads(spec)
    with job(f"certify {wanted['loss']}", path_log) as report:
        from optnoise.envelope import envelope
        from optnoise.envelope_programs import Problem
        from optnoise.storage import write_table

        problem = Problem(wanted["half_width"], wanted["sensitivity"], wanted["loss"])
        power = 1 if wanted["loss"] == "l1" else 2
        rows = []
        for done, width in enumerate(wanted["widths"]):
            bound = envelope(problem, width**power, programs=wanted["programs"], nodes=wanted["nodes"])
            for n in wanted["compositions"]:
                lower = float(bound.delta(wanted["epsilon"], n))
                rows.append([wanted["loss"], n, wanted["epsilon"], width, lower])
            report(done + 1, len(wanted["widths"]))
        write_table(path_table, ["loss", "n", "eps", "utility", "delta_lower"], rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("spec", "table", "log"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    main(given.spec, given.table, given.log)
