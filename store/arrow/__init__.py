"""Stores as Arrow: messages, units, items, offsets and findings as columns, with the names of the JSON.

One declaration of columns and types for local commands, the library and the data sources of Spark.
Needs pyarrow (extra `arrow`), and is imported only by what makes or takes Arrow. It may use
`verify`, `offsets` and all below them.
"""

from __future__ import annotations

import importlib.util

from ..errors import Unsupported


def require_arrow(what: str) -> None:
    """Raise Unsupported where pyarrow is missing. what: needs it, in the plural or not."""
    if importlib.util.find_spec("pyarrow") is None:
        raise Unsupported(f"{what} without pyarrow", hint="pip install 'mqstore[arrow]'")
