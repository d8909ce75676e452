"""What Snakemake's report shows of ours: captions, and a front page with the claims and the versions.

Both are reStructuredText with raw HTML inside, so that no sign of mathematics is taken for markup.
"""

from __future__ import annotations

import html
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata

PACKAGES = (
    *("optnoise", "numpy", "scipy", "numba", "pandas", "matplotlib", "seaborn", "snakemake"),
    *("cupy-cuda13x", "snakemake-executor-plugin-slurm"),
)

# Snakemake centres the page in the window, which puts the top of a long one out of reach, and keeps it narrow.
STYLE = (
    "<style>.h-screen.items-center {align-items: flex-start} .prose.max-w-lg {max-width: 56rem} "
    "td, th {text-align: left; vertical-align: top; padding: 0.2em 0.8em 0.2em 0}</style>"
)


def caption(text: str) -> str:
    """A caption, plain paragraphs, as reStructuredText."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n")]
    return _raw("".join(f"<p>{_escape(paragraph)}</p>" for paragraph in paragraphs))


def front_page(claims: Sequence[Mapping[str, str]], described: str) -> str:
    """The report's first page: what it is, the table of claims (rows by column name), and the versions."""
    columns = list(claims[0]) if claims else []
    found = [("python", platform.python_version())]
    for package in PACKAGES:
        try:
            found.append((package, metadata.version(package)))
        except metadata.PackageNotFoundError:
            continue
    parts = [
        STYLE,
        f"<p>{_escape(described)}</p>",
        "<h2>The paper's claims</h2>",
        _table("claims", columns, ([row[column] for column in columns] for row in claims)),
        "<h2>Versions</h2>",
        _table("versions", ("package", "version"), found),
    ]
    return _raw("".join(parts))


def _table(name: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def line(cells: Iterable[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{_escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return f'<table id="{name}">{line(columns, "th")}{"".join(line(row, "td") for row in rows)}</table>'


def _escape(text: str) -> str:
    """Text for HTML inside a Jinja template: a brace could open an expression."""
    return html.escape(str(text)).replace("{", "&#123;")


def _raw(body: str) -> str:
    return f".. raw:: html\n\n   {body}\n"
