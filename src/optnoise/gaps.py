"""How far frontier noises can be from the best possible: certified gaps in delta and in utility loss.

The region table holds, for utility losses w_1 < w_2 < ..., deltas that no noise of that utility loss goes below. The
bound falls with w, so for a noise with utility loss u and delta d:

- ``delta_floor`` is the bound at the least w_i >= u: nothing with utility loss u has a smaller delta;
- ``utility_floor`` is the largest w_i whose bound is above d: nothing with delta d has a smaller utility loss.

Both are as fine as the table's steps and never too optimistic. Where asked, ``utility_floor`` is raised by bound
tightening, which proves more and costs more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = [
    *("loss", "n", "eps", "experiment", "run", "method", "model", "weight", "utility", "delta_upper"),
    *("delta_floor", "delta_gap", "utility_floor", "utility_gap", "tightened"),
]


def gaps(frontiers: pd.DataFrame, region: pd.DataFrame) -> pd.DataFrame:
    """Gaps of every frontier noise (columns ``COLUMNS``); NaN where the table proves nothing."""
    import pandas as pd

    points = frontiers[frontiers["status"] == "frontier"]
    rows = []
    for point in points.itertuples():
        same = (region["loss"] == point.loss) & (region["n"] == point.n) & (region["eps"] == point.eps)
        bounds = region[same].sort_values("utility")
        widths, lower = bounds["utility"].to_numpy(), bounds["delta_lower"].to_numpy()
        above, impossible = widths >= point.utility, lower > point.delta_upper
        delta_floor = lower[above][0] if above.any() else 0.0
        utility_floor = widths[impossible][-1] if impossible.any() else 0.0
        values = {name: getattr(point, name) for name in COLUMNS[:10]}
        values |= {
            "delta_floor": delta_floor,
            "delta_gap": point.delta_upper / delta_floor if delta_floor > 0 else np.nan,
            "utility_floor": utility_floor,
            "utility_gap": point.utility / utility_floor if utility_floor > 0 else np.nan,
            "tightened": False,
        }
        rows.append(values)
    return pd.DataFrame(rows, columns=COLUMNS)


def representatives(table: pd.DataFrame, delta: float) -> pd.DataFrame:
    """One row for each (loss, n): of the noises whose delta is within a factor 3 of ``delta``, the least gap.

    Where there is none, the noise whose delta is nearest to it in the logarithm.
    """
    import pandas as pd

    chosen = []
    for _, group in table.groupby(["loss", "n"], sort=True):
        distance = np.abs(np.log(group["delta_upper"] / delta))
        near = group[distance <= np.log(3.0)].dropna(subset=["utility_gap"])
        chosen.append(near.loc[near["utility_gap"].idxmin()] if len(near) else group.loc[distance.idxmin()])
    return pd.DataFrame(chosen)


def tighten(table: pd.DataFrame, rows: pd.DataFrame, prove: Callable[[str, int, float, float], float]) -> pd.DataFrame:
    """The table with the ``utility_floor`` of ``rows`` raised to what ``prove(loss, n, delta, utility)`` shows."""
    table = table.copy()
    for index, row in rows.iterrows():
        proven = prove(row["loss"], int(row["n"]), float(row["delta_upper"]), float(row["utility"]))
        floor = max(proven, row["utility_floor"])
        table.loc[index, "utility_floor"] = floor
        table.loc[index, "utility_gap"] = row["utility"] / floor if floor > 0 else np.nan
        table.loc[index, "tightened"] = True
    return table
