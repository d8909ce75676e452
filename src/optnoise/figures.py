"""What every figure script shares: reading its inputs, and writing PDF, PNG and caption whole or not at all.

A script in ``scripts/figures`` defines ``draw(inputs) -> (figure, caption)`` and calls :func:`run`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from optnoise import report
from optnoise.progress import job
from optnoise.storage import NoiseFile, atomic, load_noise, read_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Inputs:
    """The files a figure may read, by experiment. Asking for one that its rule does not name is an error."""

    noise_paths: tuple[Path, ...] = ()
    evaluation_paths: tuple[Path, ...] = ()
    frontier_paths: tuple[Path, ...] = ()
    extra_paths: tuple[Path, ...] = ()

    def noises(self, experiment: str) -> dict[str, NoiseFile]:
        """The experiment's noise files by run name."""
        return {path.stem: _noise(path) for path in self._of(self.noise_paths, experiment)}

    def evaluation(self, experiment: str) -> pd.DataFrame:
        """The experiment's evaluation tables as one."""
        import pandas as pd

        return pd.concat([read_table(path) for path in self._of(self.evaluation_paths, experiment)], ignore_index=True)

    def frontier(self, experiment: str) -> pd.DataFrame:
        """The experiment's frontier table."""
        for path in self.frontier_paths:
            if path.stem == experiment:
                return read_table(path)
        raise KeyError(f"frontier: {experiment!r} is not an input of this figure")

    def extra(self, name: str) -> Path:
        """The path of another input, by its file name."""
        for path in self.extra_paths:
            if path.name == name:
                return path
        raise KeyError(f"extra: {name!r} is not an input of this figure")

    @property
    def experiments(self) -> list[str]:
        """The experiments that the figure reads, in order."""
        names = [path.parent.name for path in self.noise_paths + self.evaluation_paths]
        return list(dict.fromkeys(names + [path.stem for path in self.frontier_paths]))

    @staticmethod
    def _of(paths: tuple[Path, ...], experiment: str) -> list[Path]:
        found = [path for path in paths if path.parent.name == experiment]
        if not found:
            raise KeyError(f"{experiment!r} is not an input of this figure")
        return found


@cache
def _noise(path: Path) -> NoiseFile:
    return load_noise(path)


def run(draw: Callable[[Inputs], tuple[Figure, str]]) -> None:
    """Parse a figure script's command line, draw, and write ``FIGURE.pdf``, ``FIGURE.png`` and ``FIGURE.md``."""
    parser = argparse.ArgumentParser(description="Draw one figure from the files that it reads.")
    for kind in ("noise", "evaluation", "frontier", "extra"):
        parser.add_argument(f"--{kind}", nargs="*", default=[], type=Path)
    parser.add_argument("--style", required=True, help="a matplotlibrc")
    parser.add_argument("--figure", required=True, type=Path, help="the output's path without its ending")
    parser.add_argument("--log", required=True)
    given = parser.parse_args()
    inputs = Inputs(tuple(given.noise), tuple(given.evaluation), tuple(given.frontier), tuple(given.extra))
    with job(f"draw {given.figure.name}", given.log):
        import logging

        import matplotlib

        logging.getLogger("fontTools").setLevel(logging.ERROR)  # the age of a font is no news
        matplotlib.use("agg")
        matplotlib.rc_file(given.style)
        figure, caption = draw(inputs)
        sources = ", ".join(inputs.experiments or [path.name for path in inputs.extra_paths])
        save(figure, f"{caption.strip()}\n\nMade from: {sources}.\n", given.figure)


def save(figure: Figure, caption: str, path: Path) -> None:
    """Write a figure, its caption, and the caption as the report takes it; the same figure gives the same bytes."""
    import matplotlib

    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
    # Laid out once, not twice for each ending, which costs as much as drawing; None would mean the setting's engine.
    with matplotlib.rc_context({"figure.constrained_layout.use": False}):
        figure.set_layout_engine(None)
        for ending, metadata in (("pdf", {"CreationDate": None}), ("png", {"Software": None})):
            with atomic(path.with_name(f"{path.name}.{ending}")) as temporary:
                figure.savefig(temporary, format=ending, metadata=metadata)
    for ending, text in (("md", caption), ("rst", report.caption(caption))):
        with atomic(path.with_name(f"{path.name}.{ending}")) as temporary:
            temporary.write_text(text)
