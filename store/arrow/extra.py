"""Whether pyarrow is there, which everything else of this room needs."""

from __future__ import annotations

import importlib.util

from ..errors import Unsupported


def require_arrow(what: str) -> None:
    """Raise Unsupported where pyarrow is missing. what: needs it, in the plural or not."""
    if importlib.util.find_spec("pyarrow") is None:
        raise Unsupported(f"{what} without pyarrow", hint="pip install 'mqstore[arrow]'")
