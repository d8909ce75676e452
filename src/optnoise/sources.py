"""Which source files decide a result: the import closure of modules, read from their syntax, not run.

Snakemake sees a rule's own code but not what that code imports. Rules therefore name, as the input ``code``, the
modules that decide their result; this file finds everything those import from the package.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def closure(*names: str, root: Path | None = None) -> list[str]:
    """Paths of the package's modules that ``names`` (such as ``losses``) import, directly or through others.

    Paths are relative to ``root`` (the folder that holds ``src``), so that moving the repository changes nothing.
    Raises ``ValueError`` for a name that is no module of the package.
    """
    root = root or PACKAGE.parent.parent
    found: set[Path] = set()
    waiting = [_path(name) for name in names]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting.extend(_imports(path))
    return sorted(str(path.relative_to(root)) for path in found)


def _path(name: str) -> Path:
    path = PACKAGE / f"{name.replace('.', '/')}.py"
    if not path.is_file():
        path = PACKAGE / name.replace(".", "/") / "__init__.py"
    if not path.is_file():
        raise ValueError(f"code: {name!r} is no module of {PACKAGE.name}")
    return path


@cache
def _imports(path: Path) -> tuple[Path, ...]:
    """Modules of the package named in the file's import statements, those inside functions included."""
    prefix = f"{PACKAGE.name}."
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    paths = []
    for name in sorted(names):
        if name.startswith(prefix):
            try:
                paths.append(_path(name.removeprefix(prefix)))
            except ValueError:
                continue  # a function or constant, not a module
    return tuple(paths)
