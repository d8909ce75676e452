"""Synthetic inputs of figures: the config's real runs, truncated Gaussians and stairs as noise, deltas by formula.

Nothing is trained and no accountant runs. Deltas are those of a Gaussian under n compositions plus the mass that n
rounds lay on the cut edges; right in shape, which is all a drawing needs.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from scipy.special import ndtr

from optnoise import frontier, plan
from optnoise.baselines import analytic_noise, grid_of, matched_gaussian, staircase, truncated_gaussian
from optnoise.figures import Inputs
from optnoise.grid import Grid, utilities
from optnoise.pairs import ORDERS
from optnoise.storage import EVALUATION_COLUMNS, NoiseFile, save_noise, write_table

ROOT = Path(__file__).resolve().parents[2]


def config(path_sizes: Path = ROOT / "tests" / "tiny" / "config.yaml", **sizes) -> dict:
    """The default config with the sizes of another, and with ``sizes`` over them, resolved."""
    merged = yaml.safe_load((ROOT / "config.yaml").read_text())
    over = yaml.safe_load(path_sizes.read_text()).get("sizes", {})
    merged["sizes"] = merged["sizes"] | over | sizes
    return plan.resolve(merged)


def build(settings: dict, figure: str, folder: Path) -> Inputs:
    """Write everything that ``figure`` reads below ``folder``; files that are there are kept."""
    runs, reads = plan.runs(settings), settings["figures"][figure]
    for name in dict.fromkeys(name for names in reads.values() for name in names):
        for run in runs[name].values():
            _write(run, runs, folder)
    for name in reads.get("frontier", ()):
        tables = [pd.read_csv(_path(folder, "evaluation", name, run, "csv")) for run in runs[name]]
        table = frontier.reduce(pd.concat(tables, ignore_index=True))
        write_table(folder / "frontier" / f"{name}.csv", list(table), table.itertuples(index=False))
    paths = {
        kind: tuple(_path(folder, kind, name, run, ending) for name in reads.get(kind, ()) for run in runs[name])
        for kind, ending in (("noise", "npz"), ("evaluation", "csv"))
    }
    frontiers = tuple(folder / "frontier" / f"{name}.csv" for name in reads.get("frontier", ()))
    return Inputs(paths["noise"], paths["evaluation"], frontiers)


def _path(folder: Path, kind: str, experiment: str, run: str, ending: str) -> Path:
    return folder / kind / experiment / f"{run}.{ending}"


def _write(run: plan.Run, runs: dict, folder: Path) -> None:
    path = _path(folder, "noise", run.experiment, run.name, "npz")
    if path.exists():
        return
    noise = {"learned": _learned, "analytic": _analytic, "matched": _matched}[run.kind](run, runs)
    save_noise(path, noise)
    rows = list(_rows(run, noise))
    write_table(_path(folder, "evaluation", run.experiment, run.name, "csv"), EVALUATION_COLUMNS, rows)


def _learned(run: plan.Run, _: dict) -> NoiseFile:
    """Gaussians, wider for more compositions and smaller weights; the largest weight's noise has collapsed."""
    spec = json.loads(run.noise_json)
    spec.pop("backend")  # which one was taken stands beside the spec in a noise file
    grid = Grid(spec["half_width"], spec["cells"], spec["sensitivity"])
    weights = np.asarray(spec["weights"], dtype=float)
    rows = []
    for weight in weights:
        if spec["half_width"] <= 50 and spec["model"] == "sigmoid":
            p = staircase(grid, spec["epsilon"]) * (1 + 1e-3 * np.cos(grid.centres))
        elif spec["model"] in ("cnn", "free"):
            p = staircase(grid, spec["epsilon"]) * (1.5 + np.cos(2 * np.pi * grid.centres))
        else:
            wide = 2.5 * np.sqrt(spec["compositions"]) * (1 - 0.3 * np.log10(weight)) / (0.7 + spec["epsilon"])
            wide *= {"adp": 1.0, "ma": 1.06, "pdp": 1.12}[spec["method"]]
            wide *= 1.05 if spec["decay_half_life"] is None else 1.0
            wide *= 1.04 if spec["order"] == "A/B" else 1.0
            wide = grid.cell_width / 3 if weight >= 1.9 else min(wide, 0.25 * grid.half_width)
            p = truncated_gaussian(grid, wide) + 1e-12
        rows.append(p / p.sum())
    meta = {"spec": spec, "grid": _shape(grid), "status": ["converged"] * len(rows)}
    return NoiseFile(grid.centres, np.stack(rows), weights, meta=meta)


def _analytic(run: plan.Run, _: dict) -> NoiseFile:
    spec = json.loads(run.noise_json)
    grid = grid_of(spec, parameter=spec["parameters"][0])
    p = np.stack([analytic_noise(spec, parameter=parameter) for parameter in spec["parameters"]])
    return NoiseFile(grid.centres, p, np.asarray(spec["parameters"], float), meta={"spec": spec, "grid": _shape(grid)})


def _matched(run: plan.Run, runs: dict) -> NoiseFile:
    source = _learned(runs[run.source[0]][run.source[1]], runs)
    grid = Grid(**source.meta["grid"])
    loss = run.noise["loss"]
    p = np.stack([matched_gaussian(grid, utility=float(row @ grid.cost(loss)), loss=loss) for row in source.p])
    meta = {"spec": dict(run.noise), "grid": source.meta["grid"]}
    return NoiseFile(source.x, p, source.weights, meta=meta)


def _shape(grid: Grid) -> dict:
    return {name: getattr(grid, name) for name in ("half_width", "cells", "sensitivity")}


def _rows(run: plan.Run, noise: NoiseFile):
    spec, grid = run.evaluation, Grid(**noise.meta["grid"])
    u1, u2 = utilities(noise.p, grid)
    for i in range(len(noise.p)):
        edge = float(noise.p[i, : grid.shift].sum())
        for q in spec["q"]:
            for n in spec["compositions"]:
                for order in ORDERS:
                    head = [spec[name] for name in ("experiment", "run", "method", "model", "loss")]
                    head += [noise.weights[i], spec["decay"], spec["pair"], q, n]
                    for epsilon in spec["epsilons"]:
                        delta = gaussian_delta(u2[i] ** 0.5, epsilon, n) * (q or 1.0) * (0.8 if order == "A/B" else 1.0)
                        infinite = -np.expm1(n * np.log1p(-min(edge, 1 - 1e-12)))
                        upper = min(1.0, delta + infinite)
                        tail = [u1[i], u2[i], u2[i] ** 0.5, upper * (1 - 1e-4), upper, infinite]
                        yield [*head, epsilon, "adp", order, *tail]


def gaussian_delta(sigma: float, epsilon: float, n: int) -> float:
    """delta of the Gaussian mechanism under n compositions, sensitivity 1 (Balle and Wang 2018)."""
    mu = np.sqrt(n) / sigma
    return float(ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))
