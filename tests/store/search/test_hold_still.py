"""What somebody writes while a store is looked at is not there for whoever holds it still."""

from __future__ import annotations

from pathlib import Path

from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.disk.lock import StoreLock
from mqstore.store.recover.recovery import Recovery, analyze
from mqstore.store.search.store import StoreReader, hold_still

from ... import stores

NAME = "5.3.3-killed"


def judged(layout: Layout) -> tuple[str, int, list[str]]:
    """The case, the end of the log, the files that a start changes, but for those made ahead."""
    found: Recovery = analyze(layout, "5.3")
    worst = found.prediction
    ahead = f"commitlog/{worst.to_json()['log_end']:020d}"
    changed = [c.path for c in worst.files if c.change != "removed" or c.path < ahead]
    return worst.case.label, worst.to_json()["log_end"], changed


def scribble(root: Path) -> None:
    """What is seen of a log and a queue while a broker writes: a record that is not whole, and good ones."""
    with StoreReader(root) as store:
        end = store.log_end.position
        file = store.log_files.file_at(end)
        assert file is not None
        first = store.message_at(store.log_files.start)
        queue = max(store.queue_summaries, key=lambda each: each.max_offset)
    with Path(file.path).open("r+b") as log:
        log.seek(end - file.start + first.total_size)
        log.write(b"x" * 100)
    unit = (end).to_bytes(8, "big") + first.total_size.to_bytes(4, "big") + bytes(8)
    at = queue.max_offset * len(unit)
    directory = root / "consumequeue" / queue.topic / str(queue.queue_id)
    files = sorted(directory.iterdir())
    index, offset = divmod(at - int(files[0].name), files[0].stat().st_size)
    with files[index].open("r+b") as units:
        units.seek(offset)
        units.write(unit)


def test_what_comes_later_is_not_there(tmp_path: Path) -> None:
    root = stores.unpack(NAME, tmp_path)
    before = judged(Layout.open(root))
    with StoreLock.take(root / "lock", Files()):
        layout = Layout.open(root)
        hold_still(layout)
        scribble(root)
        assert judged(layout) == before
        assert layout.log_stop == before[1]
    assert judged(Layout.open(root)) != before, "what was scribbled is damage, or it proves nothing"


def test_a_store_that_nobody_has(tmp_path: Path) -> None:
    layout = Layout.open(stores.unpack(NAME, tmp_path))
    hold_still(layout)
    assert layout.log_stop is None
