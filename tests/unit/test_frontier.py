"""The frontier rules: who competes, who is listed apart, the larger order, baselines' running minimum."""

import numpy as np
import pandas as pd
import pytest

from optnoise.frontier import COLLAPSED_ABOVE, COLUMNS, nondominated, reduce
from optnoise.storage import EVALUATION_COLUMNS, read_table, write_table


def rows(points, *, loss="l1", method="adp", n=1, eps=0.3, experiment="sweep", run="n1", decay=False, orders=None):
    """Evaluation rows of noises given as (utility, delta); ``orders`` scales each order's delta."""
    found = []
    for index, (utility, delta) in enumerate(points):
        for order, factor in (orders or {"A/B": 1.0, "B/A": 1.0}).items():
            upper = delta * factor
            values = {
                **{"experiment": experiment, "run": run, "method": method, "model": "sigmoid", "loss": loss},
                **{"weight": 0.1 * (index + 1), "decay": decay, "pair": "additive", "q": None, "n": n, "eps": eps},
                **{"kind": "adp", "order": order, "u1": utility, "u2": 2 * utility**2, "rms": 2**0.5 * utility},
                **{"delta_lower": 0.9 * upper, "delta_upper": upper, "delta_inf": 0.1 * upper},
            }
            found.append([values[name] for name in EVALUATION_COLUMNS])
    return found


def table(*groups):
    return pd.DataFrame([row for group in groups for row in group], columns=EVALUATION_COLUMNS)


def status(frontier):
    return dict(zip(frontier["utility"].round(9), frontier["status"], strict=True))


def test_a_noise_is_dominated_exactly_when_another_is_no_worse_in_both_and_better_in_one():
    rng = np.random.default_rng(7)
    points = [(float(u), float(d)) for u, d in rng.integers(1, 8, (60, 2)) / 10.0]
    frontier = reduce(table(rows(points)))
    assert len(frontier) == len(points)
    for row in frontier.itertuples():
        better = [
            (u, d)
            for u, d in points
            if u <= row.utility and d <= row.delta_upper and (u < row.utility or d < row.delta_upper)
        ]
        if row.status == "frontier":
            assert not better
        else:
            assert row.status == "dominated"
            assert better or points.count((row.utility, row.delta_upper)) > 1  # of equal noises one stays
    kept = frontier[frontier["status"] == "frontier"]
    assert kept["utility"].is_monotonic_increasing
    assert (np.diff(kept["delta_upper"]) < 0).all()


def test_a_collapsed_noise_is_listed_and_does_not_compete():
    points = [(0.01, 0.95), (0.02, COLLAPSED_ABOVE), (1.0, 0.92), (2.0, 0.1)]
    frontier = reduce(table(rows(points)))
    assert status(frontier) == {0.01: "collapsed", 0.02: "frontier", 1.0: "collapsed", 2.0: "frontier"}


def test_a_collapsed_noise_dominates_nobody():
    assert nondominated(np.array([0.91, 0.91]), np.array([True, False])).tolist() == [False, True]


def test_the_larger_order_counts_for_both_bounds():
    frontier = reduce(table(rows([(1.0, 0.1)], orders={"A/B": 1.0, "B/A": 3.0})))
    assert len(frontier) == 1
    assert frontier["delta_upper"].item() == pytest.approx(0.3)
    assert frontier["delta_lower"].item() == pytest.approx(0.27)
    assert frontier["delta_inf"].item() == pytest.approx(0.03)


def test_an_order_that_reverses_the_ranking_changes_who_is_on_the_frontier():
    first = rows([(1.0, 0.1)], orders={"A/B": 1.0, "B/A": 4.0}, run="a")
    second = rows([(2.0, 0.2)], orders={"A/B": 1.0, "B/A": 1.0}, run="b")
    assert status(reduce(table(first, second))) == {1.0: "frontier", 2.0: "frontier"}


def test_utility_is_mean_absolute_for_l1_and_root_mean_square_for_l2():
    frontier = reduce(table(rows([(1.5, 0.1)]), rows([(1.5, 0.1)], loss="l2")))
    by_loss = frontier.set_index("loss")["utility"]
    assert by_loss["l1"] == 1.5
    assert by_loss["l2"] == pytest.approx(2**0.5 * 1.5)


def test_analytic_noise_appears_under_both_losses():
    frontier = reduce(table(rows([(1.0, 0.5), (2.0, 0.2)], loss=None, method="gaussian")))
    assert sorted(frontier["loss"]) == ["l1", "l1", "l2", "l2"]
    l1, l2 = (frontier[frontier["loss"] == loss] for loss in ("l1", "l2"))
    assert l1["utility"].tolist() == l1["u1"].tolist()
    assert l2["utility"].tolist() == l2["rms"].tolist()
    assert l1["delta_upper"].tolist() == l2["delta_upper"].tolist()


def test_a_baselines_running_minimum_never_rises_and_keeps_the_raw_delta_beside_it():
    points = [(1.0, 0.5), (2.0, 0.2), (3.0, 0.3), (4.0, 0.1), (5.0, 0.4)]
    frontier = reduce(table(rows(points[::-1], loss=None, method="gaussian")))
    frontier = frontier[frontier["loss"] == "l1"]
    assert frontier["delta_running"].tolist() == [0.5, 0.2, 0.2, 0.1, 0.1]
    assert frontier["delta_upper"].tolist() == [0.5, 0.2, 0.3, 0.1, 0.4]


@pytest.mark.parametrize("other", [{"n": 2}, {"eps": 0.4}, {"method": "ma"}, {"loss": "l2"}])
def test_noises_of_other_groups_do_not_compete(other):
    better = rows([(0.5, 0.01)], run="other", **other)
    frontier = reduce(table(rows([(1.0, 0.1)]), better))
    assert set(frontier["status"]) == {"frontier"}


@pytest.mark.parametrize("other", [{"run": "n1_decay"}, {"decay": True}])
def test_runs_of_one_group_compete(other):
    frontier = reduce(table(rows([(1.0, 0.1)]), rows([(0.5, 0.01)], **other)))
    assert status(frontier) == {0.5: "frontier", 1.0: "dominated"}


def test_every_noise_keeps_its_row_through_a_file(tmp_path):
    evaluations = table(
        rows([(1.0, 0.1), (2.0, 1 / 3)]), rows([(1.0, 0.99)], loss=None, method="gaussian", experiment="gaussian")
    )
    write_table(tmp_path / "evaluation.csv", EVALUATION_COLUMNS, evaluations.itertuples(index=False))
    frontier = reduce(read_table(tmp_path / "evaluation.csv"))
    write_table(tmp_path / "frontier.csv", list(frontier), frontier.itertuples(index=False))
    back = read_table(tmp_path / "frontier.csv")
    assert list(back) == COLUMNS
    assert len(back) == 2 + 2  # the analytic noise twice
    assert sorted(back["delta_upper"]) == sorted([0.1, 1 / 3, 0.99, 0.99])
    assert back["n"].dtype == np.int64
