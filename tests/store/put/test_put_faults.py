"""Every step of a put fails once, in every way: no acknowledged message is lost.

After a kill, a power loss or an I/O error the store is clean, or `recover` brings it back; either
way each message that was acknowledged is in its queue, and the store takes further messages.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import NoSpace, StoreError, Unclean, Unreadable
from mqstore.store.put import bulk, message_columns
from mqstore.store.put.message_columns import columns_of
from mqstore.store.put.new_message import NewMessage

from ... import slices
from ..real_log import records_of
from ..recover.recovered import recover
from .faults import CountingFiles, FailingFiles, Killed, KilledFiles, PowerLossFiles, copy_tree
from .writing import NOW, TINY, assert_whole, contents, messages, put, writer

pytestmark = pytest.mark.long

VERSION = "5.3"
BEFORE = messages(20, seed=1)
ONE = messages(6, seed=2)
MANY = messages(45, seed=3)


@pytest.fixture(params=[45, 8], ids=["one step", "six steps"], autouse=True)
def _steps_of_columns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """MANY in one step, by one thread, or in six, by three."""
    monkeypatch.setattr(bulk, "STEP_ROWS", request.param)
    monkeypatch.setattr(message_columns, "BUFFER_BYTES", 1024)


def append(root: Path, files: Files, acknowledged: list[NewMessage]) -> None:
    """Six single messages, each acknowledged, then many at once: several files of every kind."""
    with writer(root, VERSION, files) as store:
        for message in ONE:
            store.append(message)
            store.sync()
            acknowledged.append(message)
        store.append_columns(columns_of(MANY))
        store.sync()
        acknowledged += MANY


def store_before(tmp_path: Path, new: bool) -> Path | None:
    """The store that is appended to; None for one that is begun."""
    if new:
        return None
    put(tmp_path / "before", BEFORE, VERSION)
    return tmp_path / "before"


def fresh(before: Path | None, root: Path) -> Path:
    return copy_tree(before, root) if before else root


def steps_of(before: Path | None, root: Path) -> list[tuple[str, str]]:
    """All steps of a put that works."""
    files = CountingFiles()
    append(fresh(before, root), files, [])
    assert_whole(root)
    return files.steps


def assert_nothing_lost(root: Path, acknowledged: list[NewMessage], earlier: int) -> None:
    """Recover if need be; then every acknowledged message is there, and more can be put."""
    if not acknowledged and not earlier and not (root / "commitlog").exists():
        return
    try:
        writer(root, VERSION).close()
    except Unclean:
        recover(root, TINY, VERSION)
    found = [record.body for record in records_of(Layout.open(root, TINY))]
    assert found[earlier : earlier + len(acknowledged)] == [m.body for m in acknowledged]
    put(root, [NewMessage(b"after", b"after")], VERSION)
    assert records_of(Layout.open(root, TINY))[-1].body == b"after"
    assert_whole(root)


THOROUGHLY = pytest.mark.parametrize("every", [41, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "every"])
"""How many steps are tried: one of 41, or, slowly, each of the slice."""


def chosen(steps: list[tuple[str, str]], every: int, name: str) -> Sequence[int]:
    """Numbers of the steps to try; the first and the last few are always among them."""
    numbers = range(len(steps))
    if every == 1:
        return slices.pick(numbers, name)
    return sorted({*numbers[:3], *numbers[3:-3:every], *numbers[-3:]})


@pytest.mark.few(1)
@THOROUGHLY
@pytest.mark.parametrize("new", [False, True], ids=["append", "new"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
def test_each_step_fails(error: int, new: bool, every: int, tmp_path: Path) -> None:
    before = store_before(tmp_path, new)
    steps = steps_of(before, tmp_path / "whole")
    for number in chosen(steps, every, "failing steps of put"):
        root = fresh(before, tmp_path / str(number))
        acknowledged: list[NewMessage] = []
        kind = NoSpace if error == errno.ENOSPC else Unreadable
        if kind is NoSpace and steps[number] == ("write", "lock"):  # an empty one locks as well
            append(root, FailingFiles(number, error), acknowledged)
            assert acknowledged == ONE + MANY
        else:
            with pytest.raises(kind):
                append(root, FailingFiles(number, error), acknowledged)
        assert_nothing_lost(root, acknowledged, 0 if new else len(BEFORE))


@pytest.mark.few(1)
@THOROUGHLY
@pytest.mark.parametrize("new", [False, True], ids=["append", "new"])
@pytest.mark.parametrize("layer", [KilledFiles, PowerLossFiles])
def test_killed_at_each_step(layer: Callable[[int, int], KilledFiles], new: bool, every: int, tmp_path: Path) -> None:
    before = store_before(tmp_path, new)
    steps = steps_of(before, tmp_path / "whole")
    for number in chosen(steps, every, "last steps of put"):
        root = fresh(before, tmp_path / str(number))
        acknowledged: list[NewMessage] = []
        files = layer(number, slices.SEED)
        with pytest.raises(Killed):
            append(root, files, acknowledged)
        if isinstance(files, PowerLossFiles):
            files.lose()
        assert_nothing_lost(root, acknowledged, 0 if new else len(BEFORE))


def test_what_is_refused_before_anything_is_written_leaves_no_abort(tmp_path: Path) -> None:
    """A full disk at the very first change: the store stays clean."""
    put(tmp_path / "before", BEFORE, VERSION)
    steps = steps_of(tmp_path / "before", tmp_path / "whole")
    first_write = steps.index(("create", "abort"))
    for number in range(first_write, first_write + 3):
        root = copy_tree(tmp_path / "before", tmp_path / str(number))
        with pytest.raises(StoreError):
            append(root, FailingFiles(number, errno.ENOSPC), [])
        assert not (root / "abort").exists(), steps[number]


def append_large(root: Path, files: Files) -> None:
    """Three records, each in a log file of its own, that get their answer together."""
    with writer(root, VERSION, files) as store:
        store.append_columns(columns_of([NewMessage(b"T", bytes([n]) * 3000, store_timestamp=NOW) for n in (1, 2, 3)]))
        store.sync()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EACCES], ids=["ENOSPC", "EACCES"])
def test_what_fails_before_an_answer_leaves_the_store_as_it_was(error: int, tmp_path: Path) -> None:
    """Log, new files, checkpoint, `abort`; but for a flush that fails: who knows what the disk holds then?

    The .bak of topics.json can be the newer one already, and the new entry can be there: both harm nothing.
    """
    put(tmp_path / "before", BEFORE, VERSION)
    before = contents(tmp_path / "before")
    counting = CountingFiles()
    append_large(copy_tree(tmp_path / "before", tmp_path / "whole"), counting)
    steps = counting.steps
    first, end = steps.index(("create", "abort")), steps.index(("make_directory", "T"))
    assert {"write", "create", "truncate", "open"} <= {change for change, _ in steps[first:end]}
    for number in range(first, end):
        root = copy_tree(tmp_path / "before", tmp_path / str(number))
        with pytest.raises(StoreError):
            append_large(root, FailingFiles(number, error))
        change, name = steps[number]
        unsure = change.startswith("sync") and (name.isdigit() or name == "commitlog")
        assert (root / "abort").exists() == unsure, (number, change, name)
        if not unsure:
            changed = {file for file, data in contents(root).items() if before.get(file) != data}
            replaced = number > steps.index(("rename", "topics.json.bak.tmp"))
            allowed = {"config/topics.json", "config/topics.json.bak"} if replaced else set()
            assert changed <= allowed, (number, change, name)
            assert contents(root).keys() - allowed == before.keys() - allowed


def test_the_order_of_effects(tmp_path: Path) -> None:
    """Log, topics, queues, index, checkpoint; `abort` first and last; log and topics before answers."""
    files = CountingFiles()
    with writer(tmp_path, VERSION, files) as store:
        store.append(NewMessage(b"T", b"x", properties=b"KEYS\1k\2"))
        store.sync()
        acknowledged = len(files.steps)
    order = [step for step in files.steps if step[0] in ("create", "write", "unlink")]
    names = [name for change, name in order if change != "create"]
    index = next(p.name for p in (tmp_path / "index").iterdir())
    first = f"{0:020d}"
    assert list(dict.fromkeys(names)) == [*("lock", "abort", first, "topics.json.tmp", index, "checkpoint")]
    assert order[-1] == ("unlink", "abort")
    assert files.steps[-1] == ("sync_directory", tmp_path.name)
    before_answer = files.steps[:acknowledged]
    assert before_answer[-1] == ("sync_directory", "config")
    written = before_answer.index(("write", first))
    assert before_answer[written + 1] == ("sync", first)
    assert written < before_answer.index(("create", "topics.json.tmp"))
    made = [before_answer.index(step) for step in (("create", first), ("create", "abort"))]
    assert made == sorted(made)
    assert ("sync_directory", "commitlog") in before_answer and ("sync", "abort") in before_answer
    assert index not in {name for _, name in before_answer}
