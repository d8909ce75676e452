"""The paper's figures: drawn from synthetic inputs without a warning, the same twice, with captions that compute."""

import importlib.util
import math
import os
import re
import subprocess
import sys

import figure_inputs
import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from optnoise import drawing, style
from optnoise.baselines import truncated_gaussian, uniform
from optnoise.figures import Inputs, save
from optnoise.grid import Grid
from optnoise.storage import EVALUATION_COLUMNS, NoiseFile, write_table

ROOT = figure_inputs.ROOT
FIGURES = ["fig1a", "fig1b", "fig2", "fig3", "fig4", "fig7", "fig8", "fig9", "fig10", "fig11", "fig12"]


@pytest.fixture(autouse=True)
def print_style():
    matplotlib.use("agg")
    with matplotlib.rc_context():
        matplotlib.rc_file(ROOT / "matplotlibrc")
        matplotlib.rcParams["savefig.dpi"] = 50  # nobody looks at these
        yield
    plt.close("all")


@pytest.fixture(scope="module")
def settings():
    return figure_inputs.config(stairs_half_widths=[5, 10], sweep_weights=[0.01, 0.3, 2.0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / "figures" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_draws_without_warnings(name, settings, folder, tmp_path):
    module = script(name)
    figure, caption = module.draw(figure_inputs.build(settings, name, folder))
    save(figure, caption, tmp_path / name)
    for ending in ("pdf", "png", "md"):
        assert (tmp_path / f"{name}.{ending}").stat().st_size > 100
    assert_axes_are_labelled(figure)
    assert module.__doc__.startswith(f"Figure {name.removeprefix('fig')}:")
    assert not re.search(r"\b(nan|inf|None)\b", caption), caption
    assert caption.rstrip().endswith(".")


@pytest.mark.parametrize("name", ["fig1b", "fig11"])
def test_the_same_input_gives_the_same_bytes(name, settings, folder, tmp_path):
    inputs = figure_inputs.build(settings, name, folder)
    for copy in ("first", "second"):
        save(*script(name).draw(inputs), tmp_path / copy)
    for ending in ("pdf", "png", "md"):
        first, second = ((tmp_path / f"{copy}.{ending}").read_bytes() for copy in ("first", "second"))
        assert first == second, ending


def assert_axes_are_labelled(figure):
    """Each axis has a label itself or shares one with an axis that has; something is drawn in each panel."""
    for axes in figure.axes:
        assert axes.lines or axes.texts
        for which in "xy":
            shared = getattr(axes, f"get_shared_{which}_axes")().get_siblings(axes)
            row = [panel for panel in figure.axes if _aligned(panel, axes, which)]
            labels = [getattr(panel, f"get_{which}label")() for panel in [axes, *shared, *row]]
            assert any(labels), (axes.get_title(), which)


def _aligned(panel, axes, which):
    place, other = panel.get_subplotspec(), axes.get_subplotspec()
    return place.rowspan == other.rowspan if which == "y" else place.colspan == other.colspan


def test_the_command_writes_all_files_whatever_the_hash_seed(settings, folder, tmp_path):
    inputs = figure_inputs.build(settings, "fig7", folder)
    for seed in ("1", "2"):
        command = [sys.executable, "-W", "error", ROOT / "scripts/figures/fig7.py", "--noise", "--evaluation"]
        command += ["--frontier", *inputs.frontier_paths, "--style", ROOT / "matplotlibrc"]
        command += ["--figure", tmp_path / seed / "fig7", "--log", tmp_path / "log"]
        done = subprocess.run(
            [str(part) for part in command],
            **{"env": os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT / "src")}},
            **{"capture_output": True, "text": True},
        )
        assert done.returncode == 0, done.stderr
    for ending in ("pdf", "png", "md"):
        one, two = ((tmp_path / seed / f"fig7.{ending}").read_bytes() for seed in ("1", "2"))
        assert one == two, ending


# --- Captions and marks come from the data ------------------------------------------------------------------------


def test_figure_2_states_the_largest_relative_difference_of_its_tables(settings, folder):
    inputs = figure_inputs.build(settings, "fig2", folder)
    _, caption = script("fig2").draw(inputs)
    for run in ("r5", "r10"):
        tables = [inputs.evaluation(name) for name in ("stairs_adp", "stairs_analytic")]
        learned, base = (t[t["run"] == run].groupby("eps")["delta_upper"].max() for t in tables)
        gap = ((learned - base).abs() / base).max()
        assert f"r = {run[1:]}: at most {drawing.number(gap)}, below 0.01" in caption


def test_figure_2_says_when_the_claim_fails(settings, folder, tmp_path):
    inputs = figure_inputs.build(settings, "fig2", folder)
    paths = []
    for path in inputs.evaluation_paths:
        table = pd.read_csv(path)
        if path.parent.name == "stairs_adp":
            table["delta_upper"] *= 1.03
        path = tmp_path / path.parent.name / path.name
        write_table(path, EVALUATION_COLUMNS, table.itertuples(index=False))
        paths.append(path)
    _, caption = script("fig2").draw(Inputs(inputs.noise_paths, tuple(paths)))
    assert caption.count("not below 0.01") == 2


def test_figure_1b_tells_noise_that_protects_smaller_differences_from_noise_that_does_not(settings, folder):
    module = script("fig1b")
    inputs = figure_inputs.build(settings, "fig1b", folder)
    _, caption = module.draw(inputs)
    assert "only: towers, CNN and towers, free masses." in caption
    assert "itself: truncated staircase and learned, ADP." in caption


def test_delta_by_shift_is_the_hockey_stick_divergence_at_every_whole_cell():
    module = script("fig1b")
    grid = Grid(2, 8)  # sensitivity spans two cells
    p = np.array([1, 5, 2, 12, 12, 2, 5, 1]) / 40
    noise = NoiseFile(grid.centres, p[None], np.array([1.0]), meta={"grid": {"half_width": 2, "cells": 8}})
    distance, delta = module.delta_by_shift(noise, 0.3)
    assert distance.tolist() == [0.0, 0.5, 1.0]
    for k, value in enumerate(delta):
        a, b = np.append(p, [0] * k), np.append([0] * k, p)
        assert value == pytest.approx(sum(max(0.0, x - math.exp(0.3) * y) for x, y in zip(b, a, strict=True)))


def test_figure_7_marks_each_minimum(settings, folder):
    inputs = figure_inputs.build(settings, "fig7", folder)
    figure, caption = script("fig7").draw(inputs)
    table = inputs.frontier("gaussian")
    table = table[(table["loss"] == "l1") & (table["eps"] == 0.3)]
    marks = {tuple(np.round([line.get_xdata()[0], line.get_ydata()[0]], 12)) for line in figure.axes[0].lines[1::2]}
    best = table.loc[table.groupby("n")["delta_upper"].idxmin()]
    assert marks == {tuple(np.round(pair, 12)) for pair in zip(best["weight"], best["delta_upper"], strict=True)}
    assert f"rises again in {len(best)} of {len(best)} cases" in caption


def test_figure_8_chooses_the_narrowest_collapsed_noise(settings, folder):
    inputs = figure_inputs.build(settings, "fig8", folder)
    _, caption = script("fig8").draw(inputs)
    names = [path.stem for path in inputs.frontier_paths]
    table = pd.concat([inputs.frontier(name) for name in names])
    collapsed = table[table["status"] == "collapsed"]
    assert len(collapsed)
    assert f"rms = {drawing.number(collapsed['rms'].min())}" in caption
    assert f"sweep_adp_l1: {(collapsed['experiment'] == 'sweep_adp_l1').sum()} of" in caption


def test_figure_8_says_when_nothing_collapsed(folder, tmp_path):
    settings = figure_inputs.config(sweep_weights=[0.01, 0.3])
    inputs = figure_inputs.build(settings, "fig8", tmp_path)
    _, caption = script("fig8").draw(inputs)
    assert "no noise of the sweep collapsed" in caption


def test_figure_11_counts_where_training_on_b_a_is_better(settings, folder):
    inputs = figure_inputs.build(settings, "fig11", folder)
    _, caption = script("fig11").draw(inputs)
    for method in ("adp", "ma"):
        table = inputs.evaluation(f"sgd_{method}_l1")
        table["trained"] = table["run"].str[-2:]  # the test's own configuration names runs so
        both = table.groupby(["n", "eps", "trained"])["delta_upper"].max().unstack()
        wins = int((both["BA"] <= both["AB"] * 1.001).sum())
        assert f"{style.method_name(method)}: training on B/A gives the smaller maximum, or an equal one, at" in caption
        assert f"at {wins} of {len(both)} values of eps" in caption


def test_figure_3_draws_only_non_dominated_noises_and_names_the_rest(settings, folder):
    inputs = figure_inputs.build(settings, "fig3", folder)
    figure, caption = script("fig3").draw(inputs)
    table = inputs.frontier("sweep_adp_l1")
    kept = table[table["status"] == "frontier"]
    drawn = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    points = {(x, y) for line in drawn for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)}
    assert points == set(zip(kept["utility"], kept["delta_upper"], strict=True))
    counts = table["status"].value_counts()
    assert "(a) delta over the Gaussian's" in caption
    assert f"{counts['collapsed']} collapsed and {counts.get('dominated', 0)} dominated noises not drawn" in caption


def test_the_divergence_from_a_gaussian_is_finite_where_its_masses_underflow():
    grid = Grid(400, 8000)
    narrow, wide = (truncated_gaussian(grid, sigma) for sigma in (6.0, 9.0))
    exact = math.log(9 / 6) + 36 / (2 * 81) - 0.5  # of two Gaussians, not cut and not in cells
    assert script("fig3").divergence(narrow, wide, grid.centres) == pytest.approx(exact, rel=1e-3)
    assert (narrow == 0).any() and (wide == 0).any()
    far = 0.5 * narrow + 0.5 * uniform(grid)
    sparse = script("fig3").divergence(far, wide, grid.centres)
    density = -(grid.centres**2) / 162 - math.log(9 * math.sqrt(2 * math.pi)) + math.log(grid.cell_width)
    assert sparse == pytest.approx(np.sum(far * (np.log(far) - density)), rel=1e-3)


def test_figure_9_draws_every_noise(settings, folder):
    inputs = figure_inputs.build(settings, "fig9", folder)
    figure, _ = script("fig9").draw(inputs)
    for axes, name in zip(figure.axes, ("adp_l1", "ma_l1", "pdp_l1", "adp_l2", "ma_l2", "pdp_l2"), strict=True):
        points = sum(line.get_xdata().size for line in axes.lines if line.get_marker() in ("o", "x"))
        assert points == len(inputs.frontier(f"sweep_{name}"))


def test_figures_survive_a_sweep_that_collapsed_whole(folder, tmp_path):
    settings = figure_inputs.config(sweep_weights=[2.0])
    for name in ("fig3", "fig12"):
        figure, caption = script(name).draw(figure_inputs.build(settings, name, tmp_path / "results"))
        save(figure, caption, tmp_path / name)
        if name == "fig3":
            assert "every noise collapsed" in caption


def test_deltas_of_zero_do_not_break_a_figure(settings, folder, tmp_path):
    inputs = figure_inputs.build(settings, "fig4", folder)
    paths = []
    for path in inputs.evaluation_paths:
        table = pd.read_csv(path)
        table.loc[table["eps"] > 1, ["delta_lower", "delta_upper", "delta_inf"]] = 0.0
        path = tmp_path / path.parent.name / path.name
        write_table(path, EVALUATION_COLUMNS, table.itertuples(index=False))
        paths.append(path)
    figure, caption = script("fig4").draw(Inputs(inputs.noise_paths, tuple(paths)))
    save(figure, caption, tmp_path / "fig4")
    assert "delta is below the Gaussian's at" in caption


# --- The parts ----------------------------------------------------------------------------------------------------


def test_density_keeps_every_mass_when_it_averages():
    cells = 2 * drawing.MOST_STEPS + 10
    p = np.random.default_rng(0).random(cells)
    p /= p.sum()
    noise = NoiseFile(np.arange(cells), p[None], np.array([1.0]), meta={"grid": {"half_width": 7.0, "cells": cells}})
    values, edges = drawing.density(noise, 0)
    assert values.size <= drawing.MOST_STEPS
    assert (edges[0], edges[-1]) == (-7.0, 7.0)
    assert np.sum(values * np.diff(edges)) == pytest.approx(1.0, rel=1e-12)
    assert (values * np.diff(edges))[:3] == pytest.approx(p[:9].reshape(3, 3).sum(axis=1), rel=1e-9)


def test_delta_ratio_compares_at_equal_utility_and_only_where_the_baseline_is_known():
    sigma = np.geomspace(1.0, 100.0, 41)
    delta = 1e-6 * sigma**2 + np.exp(-((sigma / 10) ** 2) / 2)
    baseline = pd.DataFrame({"utility": sigma, "delta_running": np.minimum.accumulate(delta)})
    at = np.array([3.3, 11.0, 25.0])
    learned = pd.DataFrame({"utility": at, "delta_upper": 0.97 * (1e-6 * at**2 + np.exp(-((at / 10) ** 2) / 2))})
    assert drawing.delta_ratio(learned, baseline) == pytest.approx(0.97, rel=3e-3)
    beyond = pd.DataFrame({"utility": [0.5, sigma[delta.argmin()], 90.0], "delta_upper": 0.1})
    assert np.isnan(drawing.delta_ratio(beyond, baseline)).all()
    assert np.isnan(drawing.delta_ratio(learned, baseline.iloc[:0])).all()


@pytest.mark.parametrize(
    ("low", "high", "labelled"),
    [
        (0.7, 350.0, [1.0, 10.0, 100.0]),
        (0.015, 0.12, [0.02, 0.05, 0.1]),
        (0.979, 1.021, [0.98, 1.0, 1.02]),
        (1e-12, 1.0, [1e-12, 1e-9, 1e-6, 1e-3, 1.0]),
    ],
)
def test_log_ticks_are_few_and_round(low, high, labelled):
    major, minor = drawing.log_ticks(low, high)
    assert major == pytest.approx(labelled)
    assert all(low <= value <= high for value in minor)
    assert not set(major) & set(minor)


def test_log_ticks_fit_any_limits():
    rng = np.random.default_rng(3)
    for _ in range(300):
        low = 10 ** rng.uniform(-40, 3)
        high = low * 10 ** rng.uniform(0.01, 40)
        major, minor = drawing.log_ticks(low, high)
        assert 1 <= len(major) <= 7
        assert all(low * (1 - 1e-9) <= value <= high * (1 + 1e-9) for value in major + minor)


def test_a_band_is_drawn_only_where_the_bounds_differ_visibly():
    _, (thin, wide) = plt.subplots(1, 2)
    upper = np.array([0.5, 0.2, 0.1, 0.0])
    drawing.draw_delta(thin, range(4), upper * 0.999, upper)
    drawing.draw_delta(wide, range(4), np.array([0.4, 0.1, 0.0, 0.0]), upper)
    assert (len(thin.collections), len(wide.collections)) == (0, 1)
    assert np.isnan(thin.lines[0].get_ydata()[3])


def test_numbers_for_captions():
    assert [drawing.number(v) for v in (0.0502427, 1.23456e-7, 12.0, 0.0)] == ["0.0502", "1.23e-7", "12", "0"]
    assert drawing.between([0.5, math.nan, 0.25]) == "0.25 to 0.5"
    assert drawing.between([math.nan]) == "none"
    assert drawing.listing([1, 2, 4]) == "1, 2 and 4"
    assert drawing.evenly([1, 2, 4, 8, 16, 32, 64, 128], 4) == [1, 4, 32, 128]


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (style.method_colour, "adq"),
        (style.method_line, ""),
        (style.method_name, "Gaussian"),
        (style.order_colour, "BA"),
    ],
)
def test_an_unknown_name_has_no_style(function, name):
    with pytest.raises(KeyError, match="has no style; known are"):
        function(name)


def test_colours_of_n_are_ordered_in_grey_and_the_same_everywhere():
    grey = [np.dot(style.compositions_colour(n)[:3], [0.299, 0.587, 0.114]) for n in (1, 2, 4, 8, 16, 32, 64, 128)]
    assert (np.diff(grey) > 0.03).all()
    with pytest.raises(ValueError, match="n: 0 is not allowed"):
        style.compositions_colour(0)


def test_asking_for_an_experiment_that_is_no_input_is_an_error(settings, folder):
    inputs = figure_inputs.build(settings, "fig7", folder)
    with pytest.raises(KeyError, match="laplace"):
        inputs.frontier("laplace")
    with pytest.raises(KeyError, match="towers"):
        inputs.noises("towers")


def test_every_figure_of_the_config_has_its_script():
    names = list(figure_inputs.config()["figures"])
    assert set(FIGURES) <= set(names)
    for name in names:
        assert (ROOT / "scripts" / "figures" / f"{name}.py").is_file(), name
