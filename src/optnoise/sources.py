"""Which source files decide a job's result: a script and the modules that it imports, read from their syntax.

Snakemake sees a rule's own text but not what its script imports. Rules therefore name ``closure(script)`` as their
input ``code``. Modules that only talk to people are left out: a nicer progress bar retrains nothing.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent.parent
NOT_DECIDING = frozenset({PACKAGE / "progress.py"})


def closure(script: str) -> list[str]:
    """Paths of ``script`` and of all modules of the package that it imports, directly or through others.

    All are relative to the repository, so that moving it changes nothing; the script comes first. Raises
    ``ValueError`` when there is no such script.
    """
    start = ROOT / script
    if not start.is_file():
        raise ValueError(f"code: {script!r} is no file of the repository")
    found: set[Path] = set()
    waiting = [start]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting.extend(_imports(path))
    return [script, *sorted(str(path.relative_to(ROOT)) for path in found - {start} - NOT_DECIDING)]


@cache
def _imports(path: Path) -> tuple[Path, ...]:
    """Modules of the package named in the file's import statements, those inside functions included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    inside = sorted(name.partition(".")[2] for name in names if name.startswith(f"{PACKAGE.name}."))
    # A name that is no file is a function or a constant of its module.
    return tuple(file for name in inside if (file := PACKAGE / f"{name.replace('.', '/')}.py").is_file())
