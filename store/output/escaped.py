"""Text out of a store as it may be shown: on a terminal, in a page.

Such text is foreign: it can hold control characters that move a cursor, change a window's title or answer queries, and
marks that turn the direction of a line. None of them is ever shown as it is.

HTML (tables for notebooks, pages) comes from templates that escape all that they are given. Jinja2 is the extra
`report`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported

if TYPE_CHECKING:
    from jinja2 import Environment


RANGES = (
    *(("\x00", "\x1f"), ("\x7f", "\x9f")),  # C0, DEL, C1
    *(("\u00ad", "\u00ad"), ("\u061c", "\u061c"), ("\u180e", "\u180e")),  # soft hyphen, marks
    ("\u200b", "\u200f"),  # zero width, left-to-right and opposite marks
    *(("\u2028", "\u202e"), ("\u2060", "\u206f")),  # separators, bidi, invisible
    *(("\ufeff", "\ufeff"), ("\ufff9", "\ufffb"), ("\ufffe", "\uffff")),  # non-characters, too
    ("\ud800", "\udfff"),  # halves of a surrogate pair: undecodable bytes of a file name
    ("\U000e0000", "\U000e0fff"),  # tags
)
"""First and last of the characters that do something else than show themselves."""
DANGEROUS = f"[{''.join(f'{first}-{last}' for first, last in RANGES)}]"
"""Pattern for each of these characters. It is compiled when a text needs it: most have none."""

_KEPT_LINES = f"(?!\n){DANGEROUS}"
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}


def escape(text: str) -> str:
    r"""Return `text` on one line with every dangerous character written out.

    >>> print(escape("a\x1b[2Jb\n\u202ec"))
    a\x1b[2Jb\n\u202ec
    """
    return text if text.isprintable() else re.sub(DANGEROUS, _written_out, text)


def escape_lines(text: str) -> str:
    """Escape as `escape` does, but keep line ends: for text of our own that holds foreign text."""
    return text if text.isprintable() else re.sub(_KEPT_LINES, _written_out, text)


def _written_out(match: re.Match[str]) -> str:
    char = match[0]
    short = _SHORT.get(char)
    return short or char.encode("unicode_escape", "surrogatepass").decode("ascii")


_ROWS_MAX = 50


def require_jinja(what: str) -> None:
    """Raise Unsupported without Jinja2. what: cannot be made then."""
    try:
        import jinja2  # noqa: F401
    except ModuleNotFoundError as error:
        hint = "pip install 'mqstore[report]'"
        raise Unsupported(f"{what} without Jinja2", hint=hint) from error


@cache
def templates() -> Environment:
    """Return the environment of the templates in this folder. Raises ModuleNotFoundError."""
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
    """Escape a string: names of directories may hold bytes that are no UTF-8, and any text control characters. What a
    template has made itself (Markup) stays as it is.
    """
    return escape(value) if type(value) is str else value


def table_html(title: str, head: Sequence[str], rows: Sequence[Iterable[object]]) -> str | None:
    """Return an HTML table with a title, of the first rows if there are many. All texts are escaped. None without
    Jinja2: a notebook then shows the text.
    """
    try:
        template = templates().get_template("table.html")
    except ModuleNotFoundError:
        return None
    texts = [[str(value) for value in row] for row in rows[:_ROWS_MAX]]
    return template.render(title=title, head=head, rows=texts, more=len(rows) - len(texts))
