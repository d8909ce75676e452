"""Whether the unit tests notice wrong numerics: faults are put into a copy of the source, and tests must fail.

``pytest`` runs a representative part of the table in :mod:`mutations` (``every_run``), ``pytest -m mutation`` all of
it, ``pytest -m "not mutation"`` none. Source and tests are copied once to a temporary folder, where each mutation
is applied, tested in a process of its own and taken back: compiled code and the examples that hypothesis remembers
stay there as well.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.mutation


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of all that the unit tests need. Times are kept, so that what is compiled already stays valid."""
    folder = tmp_path_factory.mktemp("mutated")
    shutil.copytree(ROOT / "src/optnoise", folder / "src/optnoise")
    for name in ("unit", "data"):
        shutil.copytree(ROOT / "tests" / name, folder / "tests" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("conftest.py", "device.py"):
        shutil.copy2(ROOT / "tests" / name, folder / "tests")
    shutil.copy2(ROOT / "pyproject.toml", folder)
    return folder


def wanted(mutation: Mutation, request: pytest.FixtureRequest) -> bool:
    return mutation.every_run or request.config.getoption("markexpr") == "mutation"


def run_tests(folder: Path, tests: tuple[str, ...], *options: str) -> subprocess.CompletedProcess:
    """Run unit tests on the copy, the same way each time."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "--hypothesis-seed=0", *options]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "COLUMNS": "200"}
    environment.pop("NUMBA_CACHE_DIR", None)  # numba then caches beside the copied source, by its time
    return subprocess.run(
        [*command, *(f"tests/unit/{test}" for test in tests)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name.replace(" ", "-"))
def test_the_text_to_replace_is_found_once(mutation: Mutation) -> None:
    source = (ROOT / "src/optnoise" / mutation.file).read_text()
    assert source.count(mutation.old) == 1
    assert mutation.new != mutation.old


def test_what_must_fail_passes_without_a_fault(copy: Path, request: pytest.FixtureRequest) -> None:
    """Else a failure would say nothing. This run also uses the copied source, not the installed package."""
    tests = tuple(sorted({test for mutation in MUTATIONS if wanted(mutation, request) for test in mutation.tests}))
    finished = run_tests(copy, tests)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    command = [sys.executable, "-c", "import optnoise; print(optnoise.__file__)"]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    found = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=True).stdout
    assert Path(found.strip()).is_relative_to(copy)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name.replace(" ", "-"))
def test_a_fault_is_noticed(mutation: Mutation, copy: Path, request: pytest.FixtureRequest) -> None:
    if not wanted(mutation, request):
        pytest.skip("not in every run; pytest -m mutation runs all")
    original, mutated = ROOT / "src/optnoise" / mutation.file, copy / "src/optnoise" / mutation.file
    try:
        mutated.write_text(original.read_text().replace(mutation.old, mutation.new))
        finished = run_tests(copy, mutation.tests, "-x", "-rf")
    finally:
        shutil.copy2(original, mutated)
    report = finished.stdout + finished.stderr
    # 1: tests failed; anything else is an error of collection, of usage or of pytest itself.
    assert finished.returncode == 1, f"noticed by no test of {', '.join(mutation.tests)}:\n{report}"
    assert re.search(r"^FAILED tests/unit/", report, re.MULTILINE), report
    assert not re.search(r"^ERROR |\b(Import|Module\w*|Name|Syntax)Error\b", report, re.MULTILINE), report
