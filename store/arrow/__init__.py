"""Stores as Arrow: messages, units, items, offsets and findings as columns, with the names of the JSON.

One declaration of columns and types for local commands, the library and the data sources of Spark.
Needs pyarrow (extra `arrow`), and is imported only by what makes or takes Arrow.
"""

from __future__ import annotations
