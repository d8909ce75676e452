"""Find the best noise for one requirement and write it as a mechanism: integer weights and a card."""

import argparse
import json
from pathlib import Path

from optnoise.progress import job


def main(spec: str, path_mechanism: str, path_log: str) -> None:
    """``spec``: a requirement as JSON (config: ``mechanisms``); writes ``path_mechanism``.csv and .json."""
    name = Path(path_mechanism).name
    with job(f"mechanism {name}", path_log) as report:
        from optnoise.design import analytic, design
        from optnoise.envelope_programs import Problem
        from optnoise.grid import Grid
        from optnoise.lower_bounds import utility_lower
        from optnoise.mechanism import Mechanism, guarantee
        from optnoise.storage import versions

        wanted = json.loads(spec)
        grid = Grid(**{key: wanted[key] for key in ("half_width", "cells", "sensitivity")})
        loss = wanted["loss"]
        goal = {key: wanted[key] for key in ("epsilon", "delta", "compositions")}
        found = design(grid, loss=loss, **goal, **wanted["search"])
        report.say(f"found utility loss {found.utility:.6g}, delta at most {found.delta:.6g}")
        mechanism = Mechanism.from_masses(found.noise, grid)
        proven = guarantee(mechanism, epsilon=goal["epsilon"], compositions=goal["compositions"])
        if proven["delta"] > goal["delta"]:
            raise ArithmeticError(f"rounding to integers raised delta to {proven['delta']!r}, above {goal['delta']!r}")
        power = 1 if loss == "l1" else 2
        key = {"l1": "mean_absolute_error", "l2": "root_mean_square_error"}[loss]
        least = utility_lower(Problem.of(grid, loss=loss), known=found.utility, **goal) ** (1 / power)
        others = {}
        for family in ("gaussian", "laplace"):
            other = analytic(grid, family, loss=loss, **goal)
            others[f"truncated {family}"] = None if other is None else other.utility ** (1 / power)
        used = proven["utility"][key]
        card = {
            "name": name,
            "about": wanted.get("about", ""),
            "requirement": {**goal, "loss": loss, "sensitivity": grid.sensitivity},
            "guarantee": proven,
            "optimality": {
                "of": key,
                "this mechanism": used,
                "no symmetric unimodal noise on this range has less than": least,
                "gap": used / least if least else None,
                "same guarantee by": others,
            },
            "drawn with": "the operating system's cryptographic generator; there is no seed",
            "found with": "a deterministic search; there is no seed",
            "versions": versions(),
        }
        mechanism = Mechanism(grid, mechanism.weights, mechanism.bits, card)
        mechanism.save(path_mechanism)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("spec", "mechanism", "log"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    main(given.spec, given.mechanism, given.log)
