"""Match analytic noise to the utility of each noise of a learned run, to one noise file."""

import argparse
import json
from pathlib import Path

from optnoise.progress import job


def main(path_source: str, spec: str, path_noise: str, path_log: str) -> None:
    """``spec``: a run's noise spec as JSON (optnoise.plan); reads ``path_source``, writes ``path_noise``."""
    with job(f"match {'/'.join(Path(path_noise).with_suffix('').parts[-2:])}", path_log):
        import numpy as np

        from optnoise.baselines import matched_gaussian
        from optnoise.grid import Grid
        from optnoise.storage import NoiseFile, load_noise, save_noise, versions

        values = json.loads(spec)
        source = load_noise(path_source)
        grid = Grid(**source.meta["grid"])
        targets = source.p @ grid.cost(values["loss"])
        p = np.stack([matched_gaussian(grid, utility=float(target), loss=values["loss"]) for target in targets])
        meta = {"spec": values, "grid": source.meta["grid"], "versions": versions()}
        save_noise(path_noise, NoiseFile(grid.centres, p, source.weights, meta=meta))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("source", "spec", "noise", "log"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    main(given.source, given.spec, given.noise, given.log)
