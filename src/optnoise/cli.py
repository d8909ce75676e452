"""The command line: ``optnoise account | sample | info``. Results go to standard output, everything else to error."""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from optnoise.grid import Grid

ACCOUNT = """\
Bounds on the privacy of additive noise, in both orders.

NOISE is a .csv with a column `p` (or `weight`, integers) of masses from left to right and, if you like, a column `x` of
where they lie, evenly spaced, such as the integers from -100 to 100; or a .npz with `x` (M,) and `p` (M,) or (W, M),
such as results/noise/*/*.npz. Masses must be at least 0 and sum to 1 within 1e-9; weights are divided by their
sum. The sensitivity must be a whole number of spacings.

Without a column `x` give --half-width: the masses then are those of as many equal cells of [-R, R]. Both bounds hold
for the masses as given: the true delta is never outside them. `distinguishing` is the part of delta that no epsilon
lowers: outcomes that one of two neighbouring inputs cannot have.
"""
ACCOUNT_EXAMPLES = """\
examples:
  optnoise account noise.csv --epsilon 0.3 --compositions 16
  optnoise account noise.csv --epsilon 0.1 0.3 1 --half-width 400
  optnoise account noise.csv --delta 1e-6 --compositions 128        the epsilon that goes with a delta
  optnoise account noise.npz --epsilon 1 --pair subsampled --q 0.01 --compositions 1000 --json
"""
SAMPLE = """\
Draw noise from a mechanism (results/mechanisms/*.json), one value a line, in units of the query.

Draws come from the operating system's cryptographic generator and are exact: no floating point is involved. To add
noise to a value give --value; it must lie on the mechanism's grid, or be rounded to it with --round.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; exits with status 2 and one line on bad input."""
    given = _parser().parse_args(arguments)
    try:
        given.run(given)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads the output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except (ValueError, OSError, RuntimeError) as error:
        print(f"optnoise {given.command}: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from None


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; how it is right, --help says."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    from optnoise.storage import versions

    parser = _Parser(prog="optnoise", description="Numerically optimal, bounded noise for differential privacy.")
    parser.add_argument("--version", action="version", version=f"optnoise {versions().get('optnoise', 'from source')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="{account,sample,info}")

    account = commands.add_parser(
        "account",
        help="bound the privacy of a noise under composition",
        description=ACCOUNT,
        epilog=ACCOUNT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    account.add_argument("noise", metavar="NOISE", type=Path, help="a .csv or .npz file of cell masses")
    wanted = account.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--epsilon", type=float, nargs="+", metavar="EPS", help="bound delta at these epsilons")
    wanted.add_argument("--delta", type=float, metavar="DELTA", help="bound epsilon at this delta")
    account.add_argument("--compositions", type=int, default=1, metavar="N", help="number of releases n (default 1)")
    account.add_argument(
        "--pair", choices=("additive", "subsampled"), default="additive", help="one release, or a step of DP-SGD"
    )
    account.add_argument("--q", type=float, metavar="Q", help="sampling rate of the subsampled pair, in (0, 1]")
    account.add_argument("--kind", choices=("adp", "pdp"), default="adp", help="approximate or probabilistic DP")
    account.add_argument("--sensitivity", type=float, metavar="S", help="default 1, or what a .npz says")
    account.add_argument("--half-width", type=float, metavar="R", help="half-width of the grid, if the file has no x")
    account.add_argument("--buckets", type=int, default=250_000, metavar="B", help="default 250000")
    account.add_argument("--json", action="store_true", help="print JSON for programs instead of a table")
    account.set_defaults(run=_account)

    sample = commands.add_parser(
        "sample",
        help="draw noise from a mechanism",
        description=SAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sample.add_argument("mechanism", metavar="MECHANISM", type=Path, help="a mechanism's .json or .csv file")
    sample.add_argument("--size", type=int, default=1, metavar="M", help="how many draws (default 1)")
    sample.add_argument("--value", metavar="V", help="add the noise to this value and print the sums")
    sample.add_argument("--round", action="store_true", help="round the value to the mechanism's grid first")
    sample.add_argument("--json", action="store_true", help="print a JSON list of exact fractions")
    sample.set_defaults(run=_sample)

    info = commands.add_parser(
        "info",
        help="versions, the backend, or what a file holds",
        description="Versions and backend, or a file's facts.",
    )
    info.add_argument("file", nargs="?", type=Path, metavar="FILE", help="a noise file (.npz) or a mechanism (.json)")
    info.add_argument("--json", action="store_true", help="print JSON")
    info.set_defaults(run=_info)
    return parser


def _account(given: argparse.Namespace) -> None:
    import numpy as np

    from optnoise.accounting import delta_bounds, epsilon_bounds
    from optnoise.pairs import ORDERS, in_order, worst_case_pair
    from optnoise.shifts import deciding_shifts

    if given.pair == "subsampled" and given.q is None:
        raise ValueError("q: missing; the subsampled pair needs a sampling rate in (0, 1]")
    if given.pair == "additive" and given.q is not None:
        raise ValueError(f"q: {given.q} is not allowed; only the subsampled pair has a sampling rate")
    if given.delta is not None and given.kind != "adp":
        raise ValueError(f"kind: {given.kind!r} is not allowed with --delta; choose adp")
    masses, grid = read_noise(given.noise, half_width=given.half_width, sensitivity=given.sensitivity)
    if given.pair == "subsampled" and abs(masses - masses[:, ::-1]).max() > 1e-9 * masses.max():
        raise ValueError(f"{given.noise}: not symmetric; the subsampled pair would say nothing of the other direction")
    rows = []
    for index, p in enumerate(masses):
        if len(masses) > 1:
            print(f"noise {index + 1} of {len(masses)}", file=sys.stderr)
        shifts = deciding_shifts(p, grid.shift)
        if len(shifts) > 1:
            print(
                f"the noise does not fall from one peak: bounding all {len(shifts)} differences up to the sensitivity",
                file=sys.stderr,
            )
        for order in ORDERS:
            pairs = (in_order(*worst_case_pair(p, grid, pair=given.pair, q=given.q, shift=k), order) for k in shifts)
            head = {"noise": index, "n": given.compositions, "order": order}
            if given.delta is None:
                found = [
                    delta_bounds(*ab, given.epsilon, given.compositions, given.kind, given.buckets) for ab in pairs
                ]
                lower, upper = (np.max([getattr(one, name) for one in found], axis=0) for name in ("lower", "upper"))
                events = max(float(one.distinguishing) for one in found)
                for at, epsilon in enumerate(given.epsilon):
                    values = {"epsilon": epsilon, "delta_lower": float(lower[at]), "delta_upper": float(upper[at])}
                    rows.append({**head, **values, "distinguishing": events})
            else:
                found = [epsilon_bounds(*ab, given.delta, given.compositions, given.buckets) for ab in pairs]
                values = {"delta": given.delta, "epsilon_lower": max(float(one.lower) for one in found)}
                rows.append({**head, **values, "epsilon_upper": max(float(one.upper) for one in found)})
    _print_rows(rows, as_json=given.json)


def _sample(given: argparse.Namespace) -> None:
    from fractions import Fraction

    from optnoise.mechanism import Mechanism

    mechanism = Mechanism.load(given.mechanism)
    if given.size < 0:
        raise ValueError(f"size: {given.size} is not allowed; it must be an integer, at least 0")
    if given.value is None:
        drawn = [int(steps) * mechanism.step for steps in mechanism.sample(given.size)]
    else:
        rounding = "nearest" if given.round else None
        drawn = [mechanism.release(given.value, rounding=rounding) for _ in range(given.size)]
    if given.json:
        print(json.dumps([str(Fraction(value)) for value in drawn]))
    else:
        for value in drawn:
            print(float(value))


def _info(given: argparse.Namespace) -> None:
    import numpy as np

    from optnoise.backend import device_problem
    from optnoise.storage import load_noise, versions

    if given.file is None:
        problem = device_problem()
        facts: dict[str, Any] = {**versions(), "backend": "cupy" if problem is None else f"numpy ({problem})"}
    elif given.file.suffix == ".npz":
        noise = load_noise(given.file)
        weights = [None if np.isnan(weight) else weight for weight in noise.weights.tolist()]
        facts = {"noises": len(noise.p), "cells": noise.x.size, "weights": weights, **noise.meta}
    elif given.file.suffix not in (".json", ".csv") or not given.file.with_suffix(".json").is_file():
        raise ValueError(f"{given.file}: neither a noise file (.npz) nor a mechanism, which is a .json card and a .csv")
    else:
        from optnoise.mechanism import Mechanism

        mechanism = Mechanism.load(given.file)
        facts = {"cells": mechanism.grid.cells, "half_width": mechanism.grid.half_width, **mechanism.card}
    if given.json:
        print(json.dumps(facts, indent=2))
    else:
        _print_facts(facts)


def read_noise(path: Path, *, half_width: float | None = None, sensitivity: float | None = None) -> tuple[Any, Grid]:
    """Masses (W, 2N) and a grid for them from a ``.csv`` or ``.npz`` file; ``ValueError`` with one line on a fault.

    Where noise lies does not matter to privacy. So a noise on any evenly spaced points will do: it is centred, and an
    odd number of them gets one more, of mass 0.
    """
    import numpy as np

    from optnoise.grid import Grid
    from optnoise.storage import load_noise

    if path.suffix == ".npz":
        noise = load_noise(path)
        stored = noise.meta.get("grid", {})
        if sensitivity is None:
            sensitivity = stored.get("sensitivity", 1.0)
        x, p = noise.x, noise.p
    elif path.suffix == ".csv":
        x, p = _read_csv(path)
    else:
        raise ValueError(f"{path}: a noise file must end in .csv or .npz")
    if half_width is not None and not 0 < half_width < float("inf"):
        raise ValueError(f"half_width: {half_width} is not allowed; it must be positive and finite")
    if x is None and half_width is None:
        raise ValueError(f"{path}: has no column x; give the grid with --half-width")
    width = 2 * half_width / p.shape[1] if x is None else _spacing(x, path)
    reach = float(f"{width * p.shape[1] / 2:.12g}")
    if x is not None and half_width is not None and abs(reach - half_width) > 1e-9 * reach:
        raise ValueError(f"half_width: {half_width} is not allowed; by its x, {path} has half-width {reach:g}")
    sensitivity = 1.0 if sensitivity is None else sensitivity
    spacings = sensitivity / width
    if not spacings > 0.5 or abs(spacings - round(spacings)) > 1e-9 * spacings:
        raise ValueError(
            f"sensitivity: {sensitivity:g} is not allowed; it must be a whole number of spacings, "
            f"and masses in {path} are {width:g} apart"
        )
    if p.shape[1] % 2:
        p = np.concatenate([p, np.zeros((len(p), 1))], axis=1)
        reach = float(f"{width * p.shape[1] / 2:.12g}")
    return p, Grid(reach, p.shape[1], sensitivity)


def _spacing(x: Any, path: Path) -> float:
    """The distance between neighbours of ``x``, which must be evenly spaced and rise."""
    import numpy as np

    if x.size < 2:
        raise ValueError(f"{path}: has {x.size} value; a noise has at least 2")
    if not np.all(np.isfinite(x)) or np.abs(x).max() > 1e300:
        raise ValueError(f"{path}: x holds values that are not finite, or beyond 1e300")
    width = (x[-1] - x[0]) / (x.size - 1)
    if not width > 0 or np.abs(x - (x[0] + width * np.arange(x.size))).max() > 1e-6 * width:
        raise ValueError(f"{path}: x is not evenly spaced, in rising order")
    return float(width)


def _read_csv(path: Path) -> tuple[Any, Any]:
    import numpy as np

    from optnoise.storage import check_masses

    try:
        with open(path, newline="", encoding="utf-8-sig") as stream:  # with or without a byte order mark
            reader = csv.DictReader(stream, skipinitialspace=True)
            reader.fieldnames = header = [name.strip() for name in reader.fieldnames or []]
            rows = list(reader)
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: not a CSV table ({error})") from None
    twice = next((name for name in ("p", "weight", "x") if header.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{path}: has {header.count(twice)} columns {twice}; it must have one")
    column = next((name for name in ("p", "weight") if rows and name in header), None)
    if column is None:
        raise ValueError(f"{path}: has no column p (masses) or weight (integers) with values below a header")

    def numbers(name: str) -> Any:
        values = []
        for line, row in enumerate(rows, start=2):
            if row[name] is None or None in row:
                raise ValueError(f"{path}: line {line}: not as many values as the header has columns, {len(header)}")
            try:
                values.append(float(row[name]))
            except (TypeError, ValueError):
                raise ValueError(f"{path}: line {line}: {name} is {row[name]!r}; it must be a number") from None
        return np.array(values)

    p = numbers(column)
    if column == "weight":
        if not np.all((p >= 0) & (p == np.floor(p)) & (p < 2**53)) or not p.sum() > 0:
            raise ValueError(f"{path}: weights must be whole numbers from 0 to 2^53, not all 0")
        p = p / p.sum()
    check_masses(p, str(path))
    return (numbers("x") if "x" in header else None), p[None, :]


def _print_rows(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    """A table for people, or JSON for programs; an infinite epsilon is the text "inf" in JSON, which has none."""
    if as_json:
        clean = [{k: "inf" if v == float("inf") else v for k, v in row.items()} for row in rows]
        print(json.dumps(clean, indent=2, allow_nan=False))
        return
    names = [name for name in rows[0] if name != "noise" or rows[-1]["noise"] > 0]
    table = [names] + [[_text(name, row[name]) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        print("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))


def _text(name: str, value: Any) -> str:
    """A value for people: eight digits, a bound never rounded to its wrong side."""
    from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

    if not isinstance(value, float) or value in (0.0, float("inf")):
        return str(value)
    rounding = {"lower": ROUND_FLOOR, "upper": ROUND_CEILING}.get(name.rpartition("_")[2], ROUND_HALF_EVEN)
    return f"{Context(prec=8, rounding=rounding).create_decimal(Decimal(value)).normalize():g}"


def _print_facts(facts: dict[str, Any], indent: int = 0) -> None:
    """Nested facts as indented lines."""
    for name, value in facts.items():
        if isinstance(value, dict):
            print(f"{' ' * indent}{name}:")
            _print_facts(value, indent + 2)
        else:
            print(f"{' ' * indent}{name}: {'none' if value is None else value}")


if __name__ == "__main__":
    main()
