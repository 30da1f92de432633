"""A running broker deletes the oldest files while a store is salvaged: the rest is saved, without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.formats.message_properties import format_properties
from mqstore.store.disk import lock
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.files import Files
from mqstore.store.errors import Missing
from mqstore.store.put.new_message import NewMessage
from mqstore.store.put.writer import StoreWriter
from mqstore.store.salvage import runs, salvage
from mqstore.store.salvage.carve import carve
from mqstore.store.salvage.salvage import LayoutKind, SalvageRequest, look, write
from mqstore.store.search.store import StoreReader
from tests.cli.datadriven import run_here

FILE_BYTES = 8192
SIZES = [f"mappedFileSizeCommitLog={FILE_BYTES}", "mappedFileSizeConsumeQueue=400", "maxHashSlotNum=10"]
CONFIG = BrokerConfig().with_set([*SIZES, "maxIndexNum=200"])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of 200 messages in several files."""
    with StoreWriter.open(tmp_path / "store", CONFIG) as writer:
        for number in range(200):
            writer.append(NewMessage(b"T", b"x" * 60, properties=format_properties({"KEYS": f"k{number}"})))
    return tmp_path / "store"


@pytest.fixture(autouse=True)
def few_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is opened again each time."""
    monkeypatch.setattr(runs, "OPEN_SOURCES", 1)


@pytest.fixture
def in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker holds the lock."""
    real = lock.holder
    for module in (lock, runs):
        monkeypatch.setattr(module, "holder", lambda path: 1 if path.parent.name == "store" else real(path))


def expire(root: Path) -> None:
    """Delete the two oldest log files and the oldest file of the queue."""
    for number in (0, 1):
        (root / "commitlog" / file_name(number * FILE_BYTES)).unlink(missing_ok=True)
    min((root / "consumequeue" / "T" / "0").iterdir()).unlink()


def left(root: Path) -> list[int]:
    """Positions of the records that the log still has."""
    with StoreReader(root, CONFIG) as store:
        return [at for batch in store.good_records() for at in batch.position.tolist()]


@pytest.mark.usefixtures("in_use")
@pytest.mark.parametrize("layout", list(LayoutKind))
@pytest.mark.parametrize("stage", ["while it is searched", "before it is written"])
def test_the_rest_is_saved(root: Path, layout: LayoutKind, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, nothing = SalvageRequest(layout, config=CONFIG), lambda _step, _size: None

    def carving(source: runs.SalvageSource, *others: object) -> None:
        if source.path == files[0]:
            expire(root)
        carve(source, *others)  # type: ignore[arg-type]

    files = runs.images_of([root]).files
    if stage == "while it is searched":
        monkeypatch.setattr(salvage, "carve", carving)
    done = look([root], files, wanted, nothing)
    if stage == "before it is written":
        expire(root)
    with done.sources:
        write(done, root.parent / "new", wanted, Files(), nothing)
    there = left(root)
    assert len(there) < 200 and len(left(root.parent / "new")) == len(there)
    assert done.sources.expired and done.complete


def test_without_a_broker_it_is_an_error(root: Path) -> None:
    files = runs.images_of([root]).files
    expire(root)
    with pytest.raises(Missing):
        look([root], files, SalvageRequest(config=CONFIG), lambda _step, _size: None)


@pytest.mark.usefixtures("in_use")
def test_a_file_in_the_middle_is_an_error(root: Path) -> None:
    files = runs.images_of([root]).files
    (root / "commitlog" / file_name(2 * FILE_BYTES)).unlink()
    with pytest.raises(Missing):
        look([root], files, SalvageRequest(config=CONFIG), lambda _step, _size: None)


@pytest.mark.usefixtures("in_use")
def test_the_command_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images_of = runs.images_of

    def expiring(*asked: object) -> runs.Images:
        found = images_of(*asked)  # type: ignore[arg-type]
        expire(root)
        return found

    monkeypatch.setattr(runs, "images_of", expiring)
    told = run_here(["salvage", str(root), "--dry-run", *(word for size in SIZES for word in ("--set", size))])
    first = root / "commitlog" / file_name(0)
    said = f"the broker deleted 3 files during this command; records that are only there are left out: {first}"
    assert (told.code, told.stderr) == (0, f"mqstore: {said}\n"), told
