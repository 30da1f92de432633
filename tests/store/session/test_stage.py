"""The journal of a plan: what is known only while the index is built goes into the right edit."""

from __future__ import annotations

from pathlib import Path

from mqstore.store.disk.checkpoint import read_checkpoint
from mqstore.store.disk.files import Edit, Phase
from mqstore.store.disk.layout import Layout
from mqstore.store.plan.plan import Plan, checkpoint_edit
from mqstore.store.session.stage import _with_index_time

from ... import stores


def test_a_newer_index_file_changes_the_checkpoint_and_nothing_else_of_its_page(tmp_path: Path) -> None:
    """Bytes behind the fields are zeroed by an edit of their own, which stays."""
    layout = Layout.open(stores.unpack("5.3.3-clean", tmp_path))
    old = read_checkpoint(layout.checkpoint)
    assert old is not None
    zeros = Edit("write", str(layout.checkpoint), "rest", (), 64, 8, phase=Phase.PAGE)
    plan = Plan("keep", 0, 0, checkpoint=old)
    newer = old.index_msg_timestamp + 1
    edits = _with_index_time(layout, plan, [zeros, checkpoint_edit(layout.checkpoint, old)], newer)
    assert edits[0] == zeros
    written = checkpoint_edit(layout.checkpoint, old._replace(index_msg_timestamp=newer))
    assert edits[1:] == [written]
