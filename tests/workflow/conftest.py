"""Repositories for tests: one built whole, once; a copy of it to change; and a bare one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from repository import Workflow, copy_repository


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """A repository whose tiny configuration has been built whole, once. Tests copy it; none changes it."""
    workflow = copy_repository(tmp_path_factory.mktemp("built") / "repository")
    workflow.run()
    return workflow


@pytest.fixture
def workflow(built: Workflow, tmp_path: Path) -> Workflow:
    """A copy of the built repository, times of files kept, that the test may change."""
    shutil.copytree(built.folder, tmp_path / "repository", symlinks=True)
    return Workflow(tmp_path / "repository")


@pytest.fixture
def bare(tmp_path: Path) -> Workflow:
    """A repository in which nothing has been built."""
    return copy_repository(tmp_path / "bare")
