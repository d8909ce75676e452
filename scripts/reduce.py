"""Reduce the evaluations of one experiment to its utility-privacy frontier, to one table."""

import argparse
from pathlib import Path

from optnoise.progress import job


def main(paths_tables: list[str], path_frontier: str, path_log: str) -> None:
    """Reads the evaluation tables ``paths_tables``, writes ``path_frontier``."""
    with job(f"reduce {Path(path_frontier).stem}", path_log):
        import pandas as pd

        from optnoise.frontier import reduce
        from optnoise.storage import read_table, write_table

        frontier = reduce(pd.concat([read_table(path) for path in paths_tables], ignore_index=True))
        # itertuples, not values: a column of integers stays one
        write_table(path_frontier, list(frontier), frontier.itertuples(index=False))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", required=True)
    parser.add_argument("--frontier", required=True)
    parser.add_argument("--log", required=True)
    given = parser.parse_args()
    main(given.tables, given.frontier, given.log)
