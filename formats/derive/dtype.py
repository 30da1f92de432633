"""numpy dtype of a fixed-size schema: a structured array over the same bytes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import construct as c
import numpy as np

from .layout import Fixed, Node, Number, UnsupportedSchema, nodes_of


@lru_cache(maxsize=256)
def dtype_of(schema: c.Construct[Any, Any]) -> np.dtype[Any]:
    """Structured dtype with the field names and byte orders of `schema`.

    Members of nested structs have dotted names; padding becomes a hole. The item size is the size of the schema.
    Raises UnsupportedSchema for a schema of variable size or with an array of structs.
    """
    return run_dtype(nodes_of(schema))


def run_dtype(nodes: tuple[Node, ...]) -> np.dtype[Any]:
    """Structured dtype of nodes of constant size. Raises UnsupportedSchema for others."""
    names: list[str] = []
    formats: list[Any] = []
    offsets: list[int] = []
    position = 0
    for node in nodes:
        if not isinstance(node, Fixed):
            raise UnsupportedSchema("not of fixed size")
        if isinstance(node, Number):
            formats.append((node.code, (node.count,)) if node.count is not None else node.code)
        elif node.path:
            formats.append(f"V{node.size}")
        if node.path:
            names.append(node.path)
            offsets.append(position)
        position += node.size
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": position})
