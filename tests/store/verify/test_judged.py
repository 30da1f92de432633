"""The verdict of a command that plans: without the next start, which is added from the plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.disk.layout import Layout
from mqstore.store.recover.recovery import analyze
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.judged import verified_before, with_start
from mqstore.store.verify.run import verify

from ...stores import unpack

START = "start: --only"


@pytest.mark.parametrize("name", ["5.3.3-clean", "5.3.3-killed-page"])
def test_with_the_start_it_is_the_whole_verdict(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    with StoreReader(root) as store:
        whole = verify(store)
    layout = Layout.open(root)
    before, proved = verified_before(layout, None, jobs=1)
    assert START in before.unread
    both = with_start(before, analyze(layout, None, proved=proved))
    assert (both.status, both.findings, both.unread) == (whole.status, whole.findings, whole.unread)


def test_what_is_in_order_need_not_be_read_again(tmp_path: Path) -> None:
    """Of a sound store all of the log, and the tags of its units."""
    layout = Layout.open(unpack("5.3.3-clean", tmp_path))
    _, proved = verified_before(layout, None, jobs=1)
    assert proved is not None and proved.verified is not None
    with StoreReader(layout) as store:
        assert proved.verified.end == store.log_end.position
    assert proved.verified.tagged


def test_units_with_a_wrong_tags_code_are_not_taken_on(tmp_path: Path) -> None:
    root = unpack("5.3.3-clean", tmp_path)
    queue = min((root / "consumequeue" / "orders" / "0").iterdir())
    with queue.open("r+b") as file:
        file.seek(19)
        last = file.read(1)[0]
        file.seek(19)
        file.write(bytes([last ^ 1]))
    verdict, proved = verified_before(Layout.open(root), None, jobs=1)
    assert "I-065" in {finding.code for finding in verdict.findings}
    assert proved is None or proved.verified is None or not proved.verified.tagged
