"""The figures of the further experiments: drawn without a warning from synthetic runs, and what they compute."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from figure_inputs import ROOT, build, config

from optnoise import drawing
from optnoise.figures import Inputs, save
from optnoise.grid import Grid
from optnoise.spec import TrainSpec
from optnoise.storage import NoiseFile, load_noise, read_table, save_noise

SIZES = {"compositions": [1, 8], "sgd_compositions": [1], "sweep_weights": [0.01, 0.1, 2.0], "seeds": [0, 1, 2]}
FIGURES = [
    *("ext_seeds", "ext_range", "ext_laplace", "ext_uniform", "ext_point_mass", "ext_sampling_rate"),
    "ext_learned_range",
]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / "figures" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture(autouse=True)
def style():
    with matplotlib.rc_context():
        matplotlib.use("agg")
        matplotlib.rc_file(ROOT / "matplotlibrc")
        yield
    plt.close("all")


def inputs_of(name: str, folder: Path) -> Inputs:
    settings = config(**SIZES)
    for geng in ("geng_uniform", "geng_gaussian"):
        settings["experiments"][geng]["vary"]["parameter"] = [1e-3, 1e-2, 1e-1]  # small grids
    inputs = build(settings, name, folder)
    for path in inputs.noise_paths if name == "ext_seeds" else ():
        noise = load_noise(path)
        epoch = np.arange(0, 40 + 10 * noise.meta["spec"]["seed"], 10)  # seeds end at different epochs
        delta = np.exp(-epoch / 20)[None] * (1 + noise.meta["spec"]["seed"])
        save_noise(path, NoiseFile(noise.x, noise.p, noise.weights, {"epoch": epoch, "delta": delta}, noise.meta))
    return inputs


def changed(inputs: Inputs, kind: str, folder: Path, change: Callable[[pd.DataFrame], None]) -> Inputs:
    """The inputs with a copy of each table of this kind, changed."""
    copies = []
    for path in getattr(inputs, f"{kind}_paths"):
        copies.append(folder / path.parent.name / path.name)
        copies[-1].parent.mkdir(exist_ok=True)
        table = read_table(path)
        change(table)
        table.to_csv(copies[-1], index=False)
    return replace(inputs, **{f"{kind}_paths": tuple(copies)})


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_draws_and_says_what_it_shows(name: str, folder: Path, tmp_path: Path) -> None:
    figure, caption = script(name).draw(inputs_of(name, folder))
    save(figure, caption, tmp_path / name)
    assert {path.suffix for path in tmp_path.iterdir()} == {".pdf", ".png", ".md", ".rst"}
    assert "nan" not in caption.split()
    panels = figure.get_axes()
    assert all(axes.has_data() or axes.texts for axes in panels)
    assert all(axes.get_ylabel() for axes in panels if axes.get_subplotspec().is_first_col())
    assert all(axes.get_xlabel() for axes in panels if axes.get_subplotspec().is_last_row())


@pytest.mark.parametrize("name", ["ext_laplace", "ext_learned_range"])
def test_a_figure_draws_when_every_noise_has_collapsed(name: str, folder: Path, tmp_path: Path) -> None:
    def collapse(table: pd.DataFrame) -> None:
        if table["model"].iloc[0] != "analytic":
            table["status"] = "collapsed"

    figure, _ = script(name).draw(changed(inputs_of(name, folder), "frontier", tmp_path, collapse))
    figure.canvas.draw()
    assert any(text.get_text().startswith(("no learned", "every noise")) for a in figure.axes for text in a.texts)


@pytest.mark.parametrize("name", ["ext_uniform", "ext_point_mass", "ext_sampling_rate"])
def test_a_figure_draws_deltas_of_zero(name: str, folder: Path, tmp_path: Path) -> None:
    def vanish(table: pd.DataFrame) -> None:
        table.loc[table.index[::3], ["delta_lower", "delta_upper", "delta_inf"]] = 0.0

    figure, _ = script(name).draw(changed(inputs_of(name, folder), "evaluation", tmp_path, vanish))
    figure.canvas.draw()


def test_seeds_are_aligned_on_all_epochs_and_ended_runs_keep_their_last_delta() -> None:
    def noise(epochs: list[int], deltas: list[float]) -> NoiseFile:
        history = {"epoch": np.array(epochs), "delta": np.array([deltas])}
        return NoiseFile(np.zeros(2), np.full((1, 2), 0.5), np.ones(1), history)

    epochs, deltas = script("ext_seeds").aligned([noise([0, 10], [1, 0.5]), noise([0, 20], [1, 0.2])])
    np.testing.assert_array_equal(epochs, [10, 20])
    np.testing.assert_allclose(deltas, [[0.5, 0.5], [0.6, 0.2]])


def test_reach_is_the_outer_edge_of_the_outermost_cell_with_mass() -> None:
    grid = Grid(4, 8)
    p = np.array([[0, 0, 0.25, 0.25, 0.25, 0.25, 0, 0], np.full(8, 0.125)])
    noise = NoiseFile(grid.centres, p, np.ones(2), meta={"grid": {"half_width": 4}})
    assert [script("ext_learned_range").reach(noise, index) for index in (0, 1)] == [2.0, 4.0]


def test_gain_compares_losses_at_equal_weight() -> None:
    spec = TrainSpec(half_width=4, cells=8, weights=(0.4, 4.0), decay_half_life=10, decay_epochs=20, epochs=5)
    weights, masses = np.array(spec.weights), np.zeros((2, 8))
    noises = {"a": NoiseFile(spec.grid.centres, masses, weights, meta={"spec": spec.as_dict()})}
    shared = {"run": "a", "n": 1, "decay": True, "loss": "l1", "u2": 99.0}
    learned = pd.DataFrame([{**shared, "weight": w, "u1": 2.0, "delta_upper": 0.3} for w in (0.4, 4.0)])
    sweep = pd.DataFrame([{**shared, "weight": 0.4, "u1": 3.0, "delta_upper": 0.1, "status": "frontier"}])
    ratio = script("ext_learned_range").gain(learned, sweep, noises)["ratio"].to_numpy()
    assert ratio[0] == pytest.approx((0.1 * 2 + 0.3) / (0.1 * 3 + 0.1))
    assert np.isnan(ratio[1])


def test_small_multiples_have_as_many_panels_as_asked() -> None:
    figure, panels = drawing.small_multiples(5, columns=4)
    assert len(panels) == len(figure.axes) == 5


@pytest.mark.parametrize(("low", "high"), [(1, 1000), (3, 90), (30, 95), (41, 59), (0.2, 0.3)])
def test_plain_ticks_are_few_and_inside(low: float, high: float) -> None:
    _, axes = plt.subplots()
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    drawing.plain_ticks(axes.xaxis)
    ticks = axes.get_xticks()
    assert len(ticks) <= 9
    assert all(low <= tick <= high for tick in ticks)
    assert [f"{tick:g}" for tick in ticks] == [label.get_text() for label in axes.get_xticklabels()]


def measured(peers: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tables as the two benchmarks write them, with or without what is optional."""
    rows, intervals = [], []
    for half_width, method in ((400.0, "adp"), (400.0, "ma"), (5.0, "adp"), (5.0, "ma")):
        head = {"method": method, "half_width": half_width, "cells": 800, "stacked": 40, "compositions": 8}
        peer = {"peer_seconds": 3.0, "peer_peak_mib": 9e3, "ratio": 1500.0} if peers else {"reason": "no torch"}
        rows.append(head | {"backend": "numpy", "batch": 1, "threads": 1, "seconds": 2e-3, "peak_mib": 200.0} | peer)
        rows.append(head | {"backend": "numpy", "batch": 4, "threads": 2, "seconds": 4e-3, "batch_share": 0.5})
        gpu = {"seconds": 1e-3, "core_ratio": 8.0} if peers else {"reason": "no device"}
        rows.append(head | {"backend": "cupy", "batch": 4, "threads": 1} | gpu)
    for method in ("optnoise", "dp-accounting", "prv-accountant"):
        head = {"method": method, "pair": "subsampled", "n": 2}
        there = peers or method == "optnoise"
        found = {"cpu_seconds": 0.1, "relative_width": 0.0, "valid": method != "prv-accountant"}
        intervals.append(head | (found if there else {"reason": "not installed"}))
    columns = ["peer_seconds", "peer_peak_mib", "ratio", "batch_share", "core_ratio", "reason"]
    training = pd.DataFrame(rows).reindex(columns=[*rows[1], *(c for c in columns if c not in rows[1]), "peak_mib"])
    return training, pd.DataFrame(intervals).reindex(columns=[*head, *found, "reason"])


def test_efficiency_names_each_peer_that_is_absent(tmp_path: Path) -> None:
    figure, caption = script("ext_efficiency").compare(*measured(peers=False))
    save(figure, caption, tmp_path / "ext_efficiency")
    for absent in ("dense autograd", "batch, GPU", "dp-accounting", "no torch", "no device", "not installed"):
        assert absent in caption
    assert "dp-accounting" in figure.get_supxlabel()


def test_efficiency_draws_seconds_for_one_noise_and_tells_the_ratios(tmp_path: Path) -> None:
    figure, caption = script("ext_efficiency").compare(*measured(peers=True))
    save(figure, caption, tmp_path / "ext_efficiency")
    lines = {line.get_label(): line.get_xdata() for line in figure.axes[0].get_lines()}
    np.testing.assert_allclose(lines["batch, CPU"], 1e-3)
    np.testing.assert_allclose(lines["batch, GPU"], 2.5e-4)
    np.testing.assert_allclose(lines["dense autograd"], 3.0)
    assert "takes 1.5e3 times" in caption or "takes 1500 times" in caption
    assert "prv-accountant: 0.1 s for relative widths 0, 1 of 1 intervals apart from ours" in caption
    assert "one noise, GPU" in figure.get_supxlabel()
