"""Files in and out: noises as ``.npz``, tables as ``.csv``, whole or not at all, and checked when read.

Every writer goes through :func:`atomic`: the data is written beside its destination, flushed to the disk and
moved into place, so that a reader never sees half a file, whatever kills the writer.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from optnoise.spec import canonical_json

if TYPE_CHECKING:
    import pandas as pd

SUM_TOLERANCE = 1e-9

EVALUATION_COLUMNS = [
    *("experiment", "run", "method", "model", "loss", "weight", "decay", "pair", "q", "n", "eps", "kind"),
    *("order", "u1", "u2", "rms", "delta_lower", "delta_upper", "delta_inf"),
]


@dataclass(frozen=True)
class NoiseFile:
    """A batch of noises on one grid: ``x`` (2N,) centres, ``p`` (W, 2N) masses, ``weights`` (W,), and how made.

    ``meta`` holds every parameter under ``spec``, the seed, the versions and the backend.
    """

    x: np.ndarray
    p: np.ndarray
    weights: np.ndarray
    history: dict[str, np.ndarray] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)


class DamagedFile(ValueError):
    """A result file that cannot be read as one; the message is one line that names the file and the fault."""

    remedy = "delete that file, and the next run makes it again"


@contextlib.contextmanager
def atomic(path: str | os.PathLike, suffix: str = "") -> Iterator[Path]:
    """A temporary path in the destination's folder that becomes ``path`` when the block ends without error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=f".part{suffix}", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def save_noise(path: str | os.PathLike, noise: NoiseFile) -> None:
    """Write a noise file; the same content gives the same bytes."""
    arrays = {"x": noise.x, "p": noise.p, "weights": noise.weights, "meta": canonical_json(noise.meta)}
    arrays |= {f"history_{name}": values for name, values in noise.history.items()}
    with atomic(path) as temporary, open(temporary, "wb") as stream:
        np.savez_compressed(stream, **arrays)


def load_noise(path: str | os.PathLike) -> NoiseFile:
    """Read and check a noise file.

    Raises ``ValueError`` with one line that names the file and the fault: it is not there, or, as
    :class:`DamagedFile`, it is no archive, an array is missing, shapes do not fit, masses are negative, not finite
    or do not sum to 1.
    """
    try:
        with open(path, "rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise ValueError("it is a single array, .npy, not an archive of them")
            arrays = {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except PermissionError:
        raise ValueError(f"{path}: may not be read by this user") from None
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zipfile.LargeZipFile) as error:
        raise DamagedFile(f"{path}: not a readable noise file, it may be cut short or corrupt ({error})") from None
    except Exception as error:  # zlib.error and what else a corrupt archive can raise
        raise DamagedFile(f"{path}: not a readable noise file ({type(error).__name__}: {error})") from None
    for name in ("x", "p"):
        if name not in arrays:
            raise DamagedFile(f"{path}: has no array {name!r}; a noise file holds x (2N,) and p (W, 2N)")
    x, p = arrays["x"], np.atleast_2d(arrays["p"])
    if not (np.issubdtype(x.dtype, np.floating) or np.issubdtype(x.dtype, np.integer)):
        raise DamagedFile(f"{path}: x has type {x.dtype}; it must hold real numbers")
    if x.ndim != 1 or p.ndim != 2 or p.shape[1] != x.size:
        raise DamagedFile(f"{path}: p has shape {p.shape}, which does not fit x with shape {x.shape}")
    if p.size == 0:
        raise DamagedFile(f"{path}: p has shape {p.shape}; a noise file holds at least one noise")
    try:
        check_masses(p, str(path))
    except ValueError as error:
        raise DamagedFile(error) from None
    try:
        meta = json.loads(str(arrays.get("meta", "{}")))
    except json.JSONDecodeError as error:
        raise DamagedFile(f"{path}: meta is not JSON ({error})") from None
    if not isinstance(meta, dict) or not isinstance(meta.get("grid", {}), dict):
        raise DamagedFile(f"{path}: meta, or its grid, is no JSON object")
    history = {name.removeprefix("history_"): values for name, values in arrays.items() if name.startswith("history_")}
    weights = np.asarray(arrays.get("weights", np.full(len(p), np.nan)))
    return NoiseFile(x=x, p=p, weights=weights, history=history, meta=meta)


def check_masses(p: np.ndarray, name: str) -> None:
    """Raise ``ValueError`` unless every row of ``p`` is finite, non-negative and sums to 1 within 1e-9."""
    p = np.atleast_2d(p)
    if not np.issubdtype(p.dtype, np.number) or np.iscomplexobj(p):
        raise ValueError(f"{name}: masses have type {p.dtype}; they must be real numbers")
    if not np.all(np.isfinite(p)):
        row, column = np.argwhere(~np.isfinite(p))[0]
        raise ValueError(f"{name}: mass {column} of noise {row} is {p[row, column]}; masses must be finite")
    if np.any(p < 0):
        row, column = np.argwhere(p < 0)[0]
        raise ValueError(f"{name}: mass {column} of noise {row} is {p[row, column]}; masses must be at least 0")
    with np.errstate(over="ignore"):
        sums = p.sum(axis=-1)
    worst = int(np.argmax(np.abs(sums - 1)))
    if abs(sums[worst] - 1) > SUM_TOLERANCE:
        total = float(sums[worst])
        raise ValueError(
            f"{name}: the masses of noise {worst} sum to {total!r}; they must sum to 1 within {SUM_TOLERANCE:g}"
        )


def write_table(path: str | os.PathLike, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows as CSV under a header; floats are written so that they read back exactly, None as nothing."""
    with atomic(path) as temporary, open(temporary, "w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def read_table(path: str | os.PathLike) -> pd.DataFrame:
    """Read a table written by :func:`write_table`; floats are read back exactly.

    Raises :class:`DamagedFile` when the table is empty or does not end with a whole line.
    """
    import pandas as pd

    with open(path, "rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(size - 1, 0))
        if stream.read() != b"\n":
            raise DamagedFile(f"{path}: not a whole table, it is empty or cut short")
    return pd.read_csv(path)  # from pandas 3.1 on, floats are always read exactly


def write_json(path: str | os.PathLike, value: Mapping[str, Any]) -> None:
    """Write a JSON file for people: indented, keys in the given order, no NaN."""
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n")


def versions() -> dict[str, str]:
    """The versions that decide a number: this package, Python and the array libraries that are installed."""
    import platform
    from importlib import metadata

    found = {"python": platform.python_version()}
    for package in ("optnoise", "numpy", "scipy", "numba", "cupy-cuda13x"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found
