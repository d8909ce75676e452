"""Train one run: all its utility weights as one batch, to one noise file."""

import argparse
import json
from pathlib import Path

from optnoise.progress import job


def main(spec: str, path_noise: str, path_log: str) -> None:
    """``spec``: a run's noise spec as JSON (optnoise.plan); writes ``path_noise`` and ``path_log``."""
    with job(f"train {'/'.join(Path(path_noise).with_suffix('').parts[-2:])}", path_log) as report:
        from optnoise.spec import TrainSpec
        from optnoise.storage import NoiseFile, save_noise
        from optnoise.training import train

        values = json.loads(spec)
        backend = values.pop("backend")
        training = TrainSpec.from_json(json.dumps(values))
        checkpoint = Path(path_noise).with_suffix(".checkpoint")
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        trained = train(training, backend, progress=report, checkpoint=checkpoint)
        grid = {name: getattr(training, name) for name in ("half_width", "cells", "sensitivity")}
        meta = {**trained.meta, "grid": grid}
        report.say(f"backend {meta['backend']}; " + ", ".join(map(str, meta["status"])))
        save_noise(path_noise, NoiseFile(trained.x, trained.p, trained.weights, trained.history, meta))
        checkpoint.unlink(missing_ok=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("spec", "noise", "log"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    main(given.spec, given.noise, given.log)
