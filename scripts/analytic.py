"""Compute one run of analytic noise: one noise for each parameter, to one noise file."""

import argparse
import json
from pathlib import Path

from optnoise.progress import job


def main(spec: str, path_noise: str, path_log: str) -> None:
    """``spec``: a run's noise spec as JSON (optnoise.plan); writes ``path_noise`` and ``path_log``."""
    with job(f"analytic {'/'.join(Path(path_noise).with_suffix('').parts[-2:])}", path_log):
        import numpy as np

        from optnoise.baselines import analytic_noise, grid_of
        from optnoise.storage import NoiseFile, save_noise, versions

        values = json.loads(spec)
        parameters = values["parameters"]
        grid = grid_of(values, parameter=parameters[0])
        p = np.stack([analytic_noise(values, parameter=parameter) for parameter in parameters])
        shape = {name: getattr(grid, name) for name in ("half_width", "cells", "sensitivity")}
        meta = {"spec": values, "grid": shape, "versions": versions()}
        save_noise(path_noise, NoiseFile(grid.centres, p, np.asarray(parameters, dtype=float), meta=meta))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("spec", "noise", "log"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    main(given.spec, given.noise, given.log)
