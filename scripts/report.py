"""Write the front page of Snakemake's report: the table of claims and the versions."""

import argparse

from optnoise.progress import job

DESCRIBED = (
    "Numerically optimal truncated additive noise for differential privacy: every figure with its caption, in the "
    "categories on the left, the paper's claims judged by our own results, and the versions that computed them. "
    "Every delta comes from the evaluator, as a lower and an upper bound, and curves are drawn at the upper bound."
)


def main(path_claims: str, path_page: str, path_log: str) -> None:
    """Reads the table of claims ``path_claims``, writes ``path_page`` (reStructuredText)."""
    with job("report", path_log):
        import csv

        from optnoise.report import front_page
        from optnoise.storage import atomic
        from optnoise.verdicts import shown

        rows = []
        with open(path_claims, newline="") as stream:
            for row in csv.DictReader(stream):
                bounds = row.pop("ours_lower"), row.pop("ours_upper")
                ours = f"{shown(*map(float, bounds))} ({row.pop('case')})" if all(bounds) else row.pop("case")
                names = ("claim", "statement", "paper")
                rows.append(
                    {name: row[name] for name in names} | {"ours": ours} | {n: row[n] for n in ("wanted", "result")}
                )
        with atomic(path_page) as temporary:
            temporary.write_text(front_page(rows, DESCRIBED))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("claims", "page", "log"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    main(given.claims, given.page, given.log)
