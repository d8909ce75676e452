"""What a job says while it runs: a bar on a terminal, plain periodic lines in its log and everywhere else."""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TextIO

from optnoise.memory import keep_freed_memory

LINE_SECONDS = 5.0


class Reporter:
    """Reports one job's progress to its log file and to the terminal or standard error."""

    def __init__(self, title: str, log: TextIO) -> None:
        self.title = title
        self._log = log
        self._start = time.monotonic()
        self._last_line = -LINE_SECONDS
        self._first: tuple[int, float] | None = None
        self._bar = None

    def say(self, text: str) -> None:
        """One line to the log. A full disk must not hide the failure that it tells of, so that it is no error."""
        with contextlib.suppress(OSError):
            self._log.write(f"{datetime.now():%Y-%m-%d %H:%M:%S} {text}\n")
            self._log.flush()

    def __call__(self, step: int, steps: int, loss: float | None = None, delta: float | None = None) -> None:
        """Report step ``step`` of ``steps``, with the current loss and delta where there are any."""
        values = {}
        if loss is not None:
            values["loss"] = f"{loss:.4g}"
        if delta is not None:
            values["delta"] = f"{delta:.4g}"
        if sys.stderr.isatty():
            self._draw(step, steps, values)
        now = time.monotonic() - self._start
        if now - self._last_line >= LINE_SECONDS:
            self._last_line = now
            text = " ".join(f"{name} {value}" for name, value in values.items())
            line = f"{self.title}: {step}/{steps} {text}"
            # The first steps are those that compile and allocate: they say nothing of the rest.
            if self._first is None:
                self._first = (step, now)
            elif step > self._first[0]:
                left = (now - self._first[1]) / (step - self._first[0]) * (steps - step)
                line += f" {left:.0f} s left at most"
            self.say(line)
            if not sys.stderr.isatty() and now >= LINE_SECONDS:
                print(line, file=sys.stderr, flush=True)

    def _draw(self, step: int, steps: int, values: dict[str, str]) -> None:
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(total=steps, desc=self.title, leave=False, dynamic_ncols=True, file=sys.stderr)
        self._bar.total = steps
        self._bar.n = step
        self._bar.set_postfix(values, refresh=True)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()


@contextlib.contextmanager
def job(title: str, log_path: str | Path) -> Iterator[Reporter]:
    """Run a job: open its log, report, and turn a failure into one line that names the log, and exit status 1.

    The traceback goes to the log. An error's attribute ``remedy``, if it has one, is added: what to do about it.
    """
    log_path = Path(log_path)
    keep_freed_memory()
    with _opened(title, log_path) as log:
        report = Reporter(title, log)
        report.say(f"{title}: start")
        try:
            yield report
        except Exception as error:
            report.say(traceback.format_exc())
            report.close()
            text = " ".join(str(error).split()) or type(error).__name__
            text += f"; {error.remedy}" if hasattr(error, "remedy") else ""
            print(f"{title}: failed: {text} (log: {log_path})", file=sys.stderr, flush=True)
            raise SystemExit(1) from None
        except KeyboardInterrupt:
            report.say("interrupted")
            raise SystemExit(130) from None
        finally:
            report.close()
        report.say(f"{title}: done in {time.monotonic() - report._start:.1f} s")


@contextlib.contextmanager
def _opened(title: str, path: Path) -> Iterator[TextIO]:
    """The log file, open for writing; a failure to open it ends the job with one line."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        log = open(path, "w")  # noqa: SIM115  closing it must not fail either
    except OSError as error:
        print(f"{title}: failed: the log cannot be written: {error}", file=sys.stderr, flush=True)
        raise SystemExit(1) from None
    try:
        yield log
    finally:
        with contextlib.suppress(OSError):
            log.close()
