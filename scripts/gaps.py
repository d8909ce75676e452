"""Certify the gaps of the frontiers' noises to the impossible region, to one table."""

import argparse
import json

from optnoise.progress import job


def main(paths_frontiers: list[str], paths_regions: list[str], spec: str, path_table: str, path_log: str) -> None:
    """``spec``: JSON with the problem, the n to ``tighten`` and the ``delta`` near which; writes ``path_table``."""
    with job("gaps", path_log) as report:
        import pandas as pd

        from optnoise.envelope_programs import Problem
        from optnoise.gaps import COLUMNS, gaps, representatives, tighten
        from optnoise.lower_bounds import utility_lower
        from optnoise.storage import read_table, write_table
        from optnoise.tightening import Effort

        wanted = json.loads(spec)
        frontiers = pd.concat([read_table(path) for path in paths_frontiers], ignore_index=True)
        region = pd.concat([read_table(path) for path in paths_regions], ignore_index=True)
        table = gaps(frontiers[frontiers["model"] != "analytic"], region)
        rows = representatives(table, wanted["delta"])
        rows = rows[rows["n"].isin(wanted["tighten"])]

        def prove(loss: str, n: int, delta: float, utility: float) -> float:
            problem = Problem(wanted["half_width"], wanted["sensitivity"], loss)
            power = 1 if loss == "l1" else 2
            least = utility_lower(
                problem,
                delta=delta,
                epsilon=wanted["epsilon"],
                compositions=n,
                known=utility**power,
                effort=Effort(**wanted["effort"]),
            )
            width = least ** (1 / power)
            report.say(f"{loss}, n = {n}, delta {delta:.4g}: utility loss {utility:.5g}, at least {width:.5g}")
            return width

        table = tighten(table, rows, prove)
        write_table(path_table, COLUMNS, table[COLUMNS].itertuples(index=False))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frontiers", nargs="+", required=True)
    parser.add_argument("--regions", nargs="+", required=True)
    for name in ("spec", "table", "log"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    main(given.frontiers, given.regions, given.spec, given.table, given.log)
