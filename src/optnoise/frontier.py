"""From evaluations to utility-privacy frontiers: which noises no other dominates, and which collapsed.

Every evaluated noise keeps its row, with a ``status``:

- ``frontier``: no other noise of the group has both lower utility loss and lower delta;
- ``dominated``: another has;
- ``collapsed``: delta_upper above 0.9 at the trained epsilon; listed, but not competing.

A group is one (method, loss, n, eps, kind, pair, q). Analytic noise belongs to both utility losses and so appears
under each; its column ``delta_running`` is the running minimum of delta over rising utility loss, as the paper
draws baselines: nobody needs a noise that is worse on both counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

COLLAPSED_ABOVE = 0.9
GROUP = ["method", "loss", "n", "eps", "kind", "pair", "q"]
SAME_NOISE = [
    *("experiment", "run", "method", "model", "loss", "weight", "decay", "pair", "q", "n", "eps", "kind"),
    *("u1", "u2", "rms"),
]
COLUMNS = [*SAME_NOISE, "utility", "delta_lower", "delta_upper", "delta_inf", "delta_running", "status"]


def reduce(evaluations: pd.DataFrame) -> pd.DataFrame:
    """The frontier table (columns ``COLUMNS``) of an evaluation table with ``storage.EVALUATION_COLUMNS``.

    The delta of a noise is the larger of its two orders': both bounds are maxima over the orders.
    """
    import pandas as pd

    noises = evaluations.groupby(SAME_NOISE, dropna=False, sort=False, as_index=False)[
        ["delta_lower", "delta_upper", "delta_inf"]
    ].max()
    analytic = noises["loss"].isna()
    twice = [noises[~analytic], *(noises[analytic].assign(loss=loss) for loss in ("l1", "l2"))]
    noises = pd.concat([part for part in twice if len(part)], ignore_index=True)
    noises["utility"] = np.where(noises["loss"] == "l1", noises["u1"], noises["rms"])
    groups = [_mark(group) for _, group in noises.groupby(GROUP, dropna=False, sort=True)]
    return pd.concat(groups, ignore_index=True)[COLUMNS]


def _mark(group: pd.DataFrame) -> pd.DataFrame:
    """One group, sorted by utility loss, with its statuses and running minimum."""
    group = group.sort_values(["utility", "delta_upper"], kind="stable").copy()
    delta = group["delta_upper"].to_numpy()
    group["delta_running"] = np.minimum.accumulate(delta)
    collapsed = delta > COLLAPSED_ABOVE
    group["status"] = np.where(
        collapsed, "collapsed", np.where(nondominated(delta, collapsed), "frontier", "dominated")
    )
    return group


def nondominated(delta: np.ndarray, left_out: np.ndarray) -> np.ndarray:
    """Which deltas, sorted by rising utility loss, are below all earlier ones; those ``left_out`` do not compete."""
    competing = np.where(left_out, np.inf, delta)
    best_before = np.concatenate([[np.inf], np.minimum.accumulate(competing)[:-1]])
    return ~left_out & (competing < best_before)
