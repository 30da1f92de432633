"""`mqstore pipeline`: commands for many and large stores, on Spark. One module per command."""

from __future__ import annotations

from .declared import Group
from .pipeline_compact import compact
from .pipeline_diff import diff
from .pipeline_export import export
from .pipeline_import import import_
from .pipeline_rebuild import rebuild
from .pipeline_sql import sql
from .pipeline_stats import stats
from .pipeline_verify import verify

pipeline = Group(
    """Work on many and large stores with Spark.

    Spark runs inside this process unless --master names a cluster. It needs the extra `spark`
    (pip install 'mqstore[spark]'), which brings its own Java if there is none. import and compact
    write one log and run without Spark.
    """,
    {
        **{command.__name__: command for command in (rebuild, verify, export, sql, stats, diff, compact)},
        "import": import_,
    },
)
