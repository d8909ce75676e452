"""Deltas of a batch of noises: every n, epsilon, kind and sampling rate asked for, always in both orders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from optnoise.accounting import delta_bounds
from optnoise.grid import Grid, utilities
from optnoise.pairs import ORDERS, in_order, worst_case_pair
from optnoise.storage import NoiseFile


def evaluate(
    noise: NoiseFile, spec: Mapping[str, Any], progress: Callable[[int, int], None] | None = None
) -> Iterator[list[Any]]:
    """Rows of the evaluation table, in the order of ``storage.EVALUATION_COLUMNS``.

    ``spec`` is a run's evaluation spec (:class:`optnoise.plan.Run`): labels that are copied to the table, and the
    lists ``compositions``, ``epsilons``, ``kinds`` and ``q``. Bounds come from the evaluator alone.
    """
    grid = Grid(**noise.meta["grid"])
    cases = [
        (index, q, n, kind, order)
        for index in range(len(noise.p))
        for q in spec["q"]
        for n in spec["compositions"]
        for kind in spec["kinds"]
        for order in ORDERS
    ]
    u1, u2 = utilities(noise.p, grid)
    for done, (index, q, n, kind, order) in enumerate(cases):
        a, b = worst_case_pair(noise.p[index], grid, pair=spec["pair"], q=q)
        bounds = delta_bounds(
            *in_order(a, b, order), spec["epsilons"], compositions=n, kind=kind, buckets=spec["buckets"]
        )
        head = [spec[name] for name in ("experiment", "run", "method", "model", "loss")]
        head += [noise.weights[index], spec["decay"], spec["pair"], q, n]
        tail = [u1[index], u2[index], u2[index] ** 0.5]
        for epsilon, lower, upper, distinguishing in zip(
            spec["epsilons"], bounds.lower, bounds.upper, _spread(bounds.distinguishing, bounds.lower), strict=True
        ):
            yield [*head, epsilon, kind, order, *tail, lower, upper, distinguishing]
        if progress is not None:
            progress(done + 1, len(cases))


def _spread(value: Any, like: Any) -> list[float]:
    """One value for each epsilon, whether the evaluator gave one or many."""
    try:
        return list(value)
    except TypeError:
        return [value] * len(like)
