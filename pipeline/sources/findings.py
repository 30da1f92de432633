"""`rocketmq-findings`: what `verify` finds in stores as rows, a store a task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from ...store.errors import StoreError
from ...store.layout import Layout
from ...store.next_commands import Given, settings
from ...store.store import Store
from ...store.verify.catalogue import Severity
from ...store.verify.finding_json import findings_json
from ...store.verify.run import verify
from ...store.verify.scene import Scope
from .ask import Ask
from .table import PROBLEM, Table, TableSource, Values


class FindingTable(Table):
    """A row is a finding as `verify --format json` tells it.

    A store that cannot be read is a fatal finding without a code.
    """

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


class FindingSource(TableSource):
    """Options `path`, `fields`, `quick`, `on_damage`."""

    table = FindingTable()

    @classmethod
    def name(cls) -> str:
        return "rocketmq-findings"
