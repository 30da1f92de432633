"""Stores as Arrow: messages, units, items, offsets and findings as columns, with the names of the JSON.

One declaration of columns and types serves local commands, the library and the Spark data sources. Needs pyarrow (extra
`arrow`); imported only by code that makes or takes Arrow. It may use `verify`, `offsets` and all below.
"""

from __future__ import annotations

import importlib.util

from ..errors import Unsupported


def require_arrow(what: str) -> None:
    """Raise Unsupported if pyarrow is missing. what: what needs pyarrow, the beginning of the message."""
    if importlib.util.find_spec("pyarrow") is None:
        raise Unsupported(f"{what} without pyarrow", hint="pip install 'mqstore[arrow]'")
