"""Verdicts on numeric claims: a measured interval against a limit, several cases to one result, a table for people.

A value is never a number but bounds on it. ``pass`` and ``fail`` are said only where the bounds prove them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

from optnoise.figures import Inputs

PASS, FAIL, UNDECIDED, NOT_APPLICABLE = "pass", "fail", "undecided", "not applicable"
RANK = {PASS: 0, UNDECIDED: 1, FAIL: 2}
SENSES = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
COLUMNS = ["claim", "statement", "paper", "measure", "case", "ours_lower", "ours_upper", "wanted", "result", "why"]


@dataclass(frozen=True)
class Case:
    """One comparison: bounds on our value, and ``sense`` and ``limit`` of what is wanted of it.

    decides: whether the claim's result rests on it; other cases are told for comparison.
    """

    name: str
    lower: float
    upper: float
    sense: str
    limit: float
    decides: bool = True

    def __post_init__(self) -> None:
        if self.sense not in SENSES:
            raise ValueError(f"sense: {self.sense!r} is not allowed; choose one of {', '.join(SENSES)}")
        if not self.lower <= self.upper:
            raise ValueError(f"{self.name}: bounds {self.lower!r} and {self.upper!r} are not in order")

    @property
    def result(self) -> str:
        """``pass`` if every value within the bounds is as wanted, ``fail`` if none is, else ``undecided``."""
        held = [SENSES[self.sense](end, self.limit) for end in (self.lower, self.upper)]
        return PASS if all(held) else UNDECIDED if any(held) else FAIL

    @property
    def wanted(self) -> str:
        """The condition in words."""
        return f"{self.sense} {_short(self.limit)}"

    @property
    def excess(self) -> float:
        """How far the worse end lies beyond the limit; negative where the case passes."""
        return self.upper - self.limit if self.sense.startswith("<") else self.limit - self.lower


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, what we measured, and the verdict. measure: what the values of the cases are."""

    number: int
    statement: str
    paper: str
    measure: str
    cases: tuple[Case, ...]
    why: str

    @property
    def result(self) -> str:
        """The worst result of the cases that decide; ``not applicable`` where there is none."""
        case = self.deciding
        return NOT_APPLICABLE if case is None else case.result

    @property
    def deciding(self) -> Case | None:
        """The case that the result rests on: the worst, and among equals the one nearest to failing."""
        cases = [case for case in self.cases if case.decides]
        return max(cases, key=lambda case: (RANK[case.result], case.excess), default=None)

    def row(self) -> list[Any]:
        """The claim as a row of the table, in the order of ``COLUMNS``."""
        head, case = [self.number, self.statement, self.paper, self.measure], self.deciding
        middle = [None] * 4 if case is None else [case.name, case.lower, case.upper, case.wanted]
        return [*head, *middle, self.result, self.why]


def claim(
    number: int,
    *,
    statement: str,
    paper: str,
    measure: str,
    noise: Sequence[str] = (),
    evaluation: Sequence[str] = (),
    frontier: Sequence[str] = (),
) -> Callable:
    """Make ``judge(inputs, buckets) -> (cases, why)`` a function from the inputs to a :class:`Claim`.

    Where one of the named experiments is missing from the inputs the claim is not applicable, and says so.
    """

    def decorate(judge: Callable[[Inputs, int], tuple[list[Case], str]]) -> Callable[..., Claim]:
        @wraps(judge)
        def judged(inputs: Inputs, buckets: int = 100_000) -> Claim:
            there = {
                "noise": {path.parent.name for path in inputs.noise_paths},
                "evaluation": {path.parent.name for path in inputs.evaluation_paths},
                "frontier": {path.stem for path in inputs.frontier_paths},
            }
            needs = {"noise": noise, "evaluation": evaluation, "frontier": frontier}
            missing = [
                f"{kind} of {name}" for kind, names in needs.items() for name in names if name not in there[kind]
            ]
            if missing:
                return Claim(number, statement, paper, measure, (), f"The inputs lack the {', the '.join(missing)}.")
            cases, why = judge(inputs, buckets)
            return Claim(number, statement, paper, measure, tuple(cases), why)

        return judged

    return decorate


def ratio(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """Bounds on first/second, both not negative and given as (lower, upper); NaN where both may be 0."""
    if second[1] == 0:
        lower, upper = (math.inf, math.inf) if first[0] > 0 else (math.nan, math.nan)
    else:
        lower = first[0] / second[1]
        upper = first[1] / second[0] if second[0] > 0 else math.inf
    return lower, upper


def worst(bounds: Sequence[tuple[float, float]], pick: Callable = max) -> tuple[float, float] | None:
    """Bounds on the largest (``pick=max``) or the smallest of several values; NaN are left out."""
    known = [(lower, upper) for lower, upper in bounds if lower <= upper]
    return (pick(lower for lower, _ in known), pick(upper for _, upper in known)) if known else None


def shown(lower: float, upper: float) -> str:
    """Bounds for people: one number and the distance to either bound where they are close, else both."""
    middle, half = (lower + upper) / 2, (upper - lower) / 2
    if half == 0 or not math.isfinite(half):
        return _short(lower, 7) if lower == upper else f"{_short(lower)} to {_short(upper)}"
    if half <= 1e-3 * abs(middle):
        digits = min(7, math.ceil(-math.log10(half / abs(middle))))
        return f"{_short(middle, digits)} ± {_short(half, 1)}"
    return f"{_short(lower)} to {_short(upper)}"


def markdown(claims: Sequence[Claim], title: str) -> str:
    """The claims as one table, then each with its cases."""
    lines = [f"# {title}", "", "| | claim | the paper | ours | wanted | result |", "|---|---|---|---|---|---|"]
    for one in claims:
        case = one.deciding
        ours, wanted = ("", "") if case is None else (f"{shown(case.lower, case.upper)} ({case.name})", case.wanted)
        cells = [f"[{one.number}](#claim-{one.number})", one.statement, one.paper, ours, wanted, f"**{one.result}**"]
        lines.append(_row(cells))
    for one in claims:
        lines += ["", f"## Claim {one.number}", "", f"{one.statement}", ""]
        lines += [f"- The paper: {one.paper}", f"- Ours: {one.measure}", f"- Result: **{one.result}**. {one.why}"]
        if one.cases:
            lines += ["", "| case | our value | wanted | result |", "|---|---|---|---|"]
        for case in one.cases:
            told = case.result if case.decides else f"{case.result} (does not decide)"
            lines.append(_row([case.name, shown(case.lower, case.upper), case.wanted, told]))
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _short(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}g}"
