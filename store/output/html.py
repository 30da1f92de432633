"""HTML, made of templates that escape whatever they are given: tables for notebooks, pages.

Jinja2 is the extra `report`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from .escaped import escape

if TYPE_CHECKING:
    from jinja2 import Environment

_ROWS_MAX = 50


def require_jinja(what: str) -> None:
    """Raise Unsupported where Jinja2 is not there. what: there is then none of."""
    try:
        import jinja2  # noqa: F401
    except ModuleNotFoundError as error:
        hint = "pip install 'mqstore[report]'"
        raise Unsupported(f"{what} without Jinja2", hint=hint) from error


@cache
def templates() -> Environment:
    """Those of this folder. Raises ModuleNotFoundError."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    return Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _source(name: str) -> str | None:
    from pkgutil import get_data

    data = get_data(__package__, f"templates/{name}")
    return None if data is None else data.decode()


def _shown(value: Any) -> Any:
    """Names of directories may have bytes that are no UTF-8, and anything may have control characters;
    what a template itself has made is as it has to be.
    """
    return escape(value) if type(value) is str else value


def table_html(title: str, head: Sequence[str], rows: Sequence[Iterable[object]]) -> str | None:
    """A table with a title; of many rows the first ones. All texts are escaped. None without Jinja2: a
    notebook then shows the text.
    """
    try:
        template = templates().get_template("table.html")
    except ModuleNotFoundError:
        return None
    texts = [[str(value) for value in row] for row in rows[:_ROWS_MAX]]
    return template.render(title=title, head=head, rows=texts, more=len(rows) - len(texts))
