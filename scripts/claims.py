"""Judge the paper's claims by cached files, to a table for people and one for programs."""

import argparse
from pathlib import Path

from optnoise.progress import job


def main(
    paths_noise: list[Path],
    paths_evaluation: list[Path],
    paths_frontier: list[Path],
    buckets: int,
    path_table: Path,
    path_text: Path,
    path_log: str,
) -> None:
    """Reads noises, evaluations and frontiers; writes ``path_table`` (CSV) and ``path_text`` (Markdown)."""
    with job("claims", path_log) as report:
        from optnoise.claims import CLAIMS
        from optnoise.figures import Inputs
        from optnoise.storage import atomic, write_table
        from optnoise.verdicts import COLUMNS, markdown

        inputs = Inputs(tuple(paths_noise), tuple(paths_evaluation), tuple(paths_frontier))
        claims = []
        for step, judge in enumerate(CLAIMS):
            claims.append(judge(inputs, buckets))
            report.say(f"claim {claims[-1].number}: {claims[-1].result}. {claims[-1].why}")
            report(step + 1, len(CLAIMS))
        text = markdown(claims, "The paper's claims")
        with atomic(path_text) as temporary:
            temporary.write_text(text)
        write_table(path_table, COLUMNS, [claim.row() for claim in claims])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("noise", "evaluation", "frontier"):
        parser.add_argument(f"--{name}", nargs="*", default=[], type=Path)
    parser.add_argument("--buckets", required=True, type=int)
    parser.add_argument("--table", required=True, type=Path)
    parser.add_argument("--text", required=True, type=Path)
    parser.add_argument("--log", required=True)
    given = parser.parse_args()
    main(given.noise, given.evaluation, given.frontier, given.buckets, given.table, given.text, given.log)
