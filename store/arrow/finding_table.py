"""What `verify` finds in a store as rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from ..disk.layout import Layout
from ..errors import StoreError
from ..next_commands import Given, settings
from ..search.store import Store
from ..verify.catalogue import Severity
from ..verify.context import Scope
from ..verify.finding_json import findings_json
from ..verify.run import verify
from .ask import Ask
from .table import PROBLEM, Table, Values


class FindingTable(Table):
    """A row is a finding as `verify --format json` tells it.

    A store that cannot be read is a fatal finding without a code.
    """

    tells_unread = True
    columns: ClassVar = {
        "code": "string",
        "severity": "string",
        "path": "string",
        "offset": "bigint",
        "length": "bigint",
        "count": "bigint",
        "message": "string",
        "broker": "string",
        "repair": "string",
        "topic": "string",
        "queue_id": "int",
        "unclean": "boolean",
    }

    def parts(self, layout: Layout, ask: Ask) -> list[bool]:
        return [True]

    def rows(self, layout: Layout, ask: Ask, part: bool) -> Iterator[tuple[int, Values]]:
        with Store(layout.root, ask.broker_config) as store:
            verdict = verify(store, Scope(quick=ask.quick))
        given = Given(settings(ask.config))
        rows = list(findings_json(verdict, Path(layout.root), given))
        yield len(rows), {name: [row.get(name) for row in rows] for name in self.columns}

    def unread(self, root: str, error: StoreError) -> Values:
        return {
            "severity": Severity.FATAL.label,
            "path": root,
            "count": 1,
            "message": str(error),
            PROBLEM: str(error),
        }
