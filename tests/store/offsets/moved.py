"""Moves of positions, planned and carried out."""

from __future__ import annotations

from pathlib import Path

from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.offsets.move import Merge, Moves, parse_reset, plan_moves
from mqstore.store.offsets.positions import positions_of
from mqstore.store.search.store import StoreReader
from mqstore.store.session.apply import apply

Places = dict[tuple[str, str, str, int], int]


def planned(root: Path, *resets: str, merge: Merge | None = None) -> Moves:
    with StoreReader(root) as store:
        return plan_moves(store, map(parse_reset, resets), merge)


def carried_out(root: Path, *resets: str, merge: Merge | None = None) -> Moves:
    found = planned(root, *resets, merge=merge)
    apply(Layout.open(root), found.plan, lambda: found.plan, Files(), command="offsets")
    return found


def positions(root: Path) -> Places:
    with StoreReader(root) as store:
        rows = positions_of(store.layout, store.generation.version).rows
    return {row.key: row.offset for row in rows}
