"""Epsilon of noises of equal variance at one delta, and a bound that no noise beats, to one table and noise file."""

import argparse
import json

from optnoise.progress import job


def main(spec: str, path_table: str, path_noise: str, path_log: str) -> None:
    """``spec``: JSON with range, grid, variance, n and delta; writes ``path_table`` and ``path_noise``."""
    with job("renyi", path_log) as report:
        import numpy as np

        from optnoise.accounting import epsilon_bounds
        from optnoise.baselines import matched_gaussian, matched_laplace
        from optnoise.best_noise import best_noise
        from optnoise.envelope_programs import Problem
        from optnoise.grid import Grid
        from optnoise.lower_bounds import epsilon_lower
        from optnoise.pairs import additive_pair
        from optnoise.storage import NoiseFile, save_noise, versions, write_table
        from optnoise.tightening import Effort

        wanted = json.loads(spec)
        grid = Grid(**{key: wanted[key] for key in ("half_width", "cells", "sensitivity")})
        variance, n, delta = (wanted[key] for key in ("variance", "compositions", "delta"))
        noises = {
            "gaussian": matched_gaussian(grid, utility=variance, loss="l2"),
            "laplace": matched_laplace(grid, utility=variance, loss="l2"),
            "best": best_noise(
                grid, loss="l2", utility=variance, compositions=n, delta=delta, growth=wanted["search"]["growth"]
            ).noise,
        }
        rows = []
        for name, p in noises.items():
            bounds = epsilon_bounds(*additive_pair(p, grid), delta, n)
            rows.append([name, float(p @ grid.cost("l2")), float(bounds.lower), float(bounds.upper)])
            report.say(f"{name}: epsilon {rows[-1][2]:.5f} to {rows[-1][3]:.5f}")
        known = min(row[3] for row in rows)
        problem = Problem.of(grid, loss="l2")
        for name, effort in (("envelope", None), ("tightened", Effort(**wanted["effort"]))):
            least = epsilon_lower(problem, variance, delta=delta, compositions=n, known=known, effort=effort)
            rows.append([name, variance, float(least), float(least)])
            report.say(f"{name}: no noise below {least:.5f}")
        shape = {name: getattr(grid, name) for name in ("half_width", "cells", "sensitivity")}
        meta = {"spec": wanted, "grid": shape, "names": list(noises), "versions": versions()}
        save_noise(
            path_noise, NoiseFile(grid.centres, np.stack(list(noises.values())), np.zeros(len(noises)), meta=meta)
        )
        write_table(path_table, ["name", "variance", "epsilon_lower", "epsilon_upper"], rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("spec", "table", "noise", "log"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    main(given.spec, given.table, given.noise, given.log)
