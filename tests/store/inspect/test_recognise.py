"""What a path is, told from place, name and content."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from mqstore.formats import kinds
from mqstore.store import errors
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.inspect.recognise import recognise
from mqstore.store.settings.read import config_files, read_config_file

from ...stores import unpack

KINDS = {
    "commitlog": "commit-log",
    "consumequeue": "consume-queue",
    "index": "index-file",
    "timerlog": "timer-log",
    "timerwheel": "timer-wheel",
    "checkpoint": "checkpoint",
    "abort": "abort",
    "lock": "lock",
    "dledger-n0": "dledger",
}


@pytest.fixture(scope="module", params=["4.3.1-killed", "5.3.3-timer-clean", "5.3.3-dledger"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real store."""
    return unpack(request.param, tmp_path_factory.mktemp("store"))


def _files(store: Path) -> list[tuple[Path, str]]:
    """Every file of a kind, by the place that a store gives it."""
    found = []
    for path in sorted(store.rglob("*")):
        top, *inside = path.relative_to(store).parts
        if top in KINDS and path.is_file() and (top != "dledger-n0" or inside[0] == "data"):
            found.append((path, KINDS[top]))
    assert found
    return found


def test_files_and_directories_in_their_place(store: Path) -> None:
    """All kinds, also files that are all zeros, and the directories around them."""
    assert recognise(store).kind == "store"
    for path, kind in _files(store):
        assert recognise(path).kind == kind, path
        for parent in path.parents[: len(path.relative_to(store).parts) - 1]:
            assert recognise(parent).kind == kind, parent


def test_copies_without_place_and_name(store: Path, tmp_path: Path) -> None:
    """By content; files without content cannot be told, and that is said."""
    for number, (path, kind) in enumerate(_files(store)):
        if kind == "abort" or not any(path.read_bytes()[: 1 << 16]):
            continue
        copy = tmp_path / f"copy {number}.bin"
        shutil.copy(path, copy)
        assert recognise(copy).kind == kind, path


def test_damaged_front_of_a_log_file_copy(store: Path, tmp_path: Path) -> None:
    """The next record behind the damage tells."""
    path = next(path for path, kind in _files(store) if kind in ("commit-log", "dledger"))
    copy = tmp_path / "front"
    copy.write_bytes(bytes(64) + path.read_bytes()[64:])
    assert recognise(copy).kind == "commit-log"


def test_queue_named_by_its_place(tmp_path: Path) -> None:
    """Also of topics with a slash, and from inside the directory."""
    store = unpack("4.9.7-lmq", tmp_path)
    queues = store / "consumequeue"
    assert recognise(queues).queue is None
    assert recognise(queues / "mqtt").queue is None
    assert recognise(queues / "mqtt" / "0").queue == ("mqtt", 0)
    assert recognise(next((queues / "%LMQ%a" / "b" / "0").iterdir())).queue == ("%LMQ%a/b", 0)
    copy = tmp_path / "copy"
    shutil.copy(next((queues / "mqtt" / "0").iterdir()), copy)
    assert recognise(copy).queue is None


def test_from_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`.` has a place, too."""
    store = unpack("4.3.1-killed", tmp_path)
    monkeypatch.chdir(store / "consumequeue" / "logs" / "0")
    assert recognise(".").queue == ("logs", 0)
    monkeypatch.chdir(store)
    assert recognise(".").kind == "store"


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda path: None, errors.Missing, "no such file"),
        (lambda path: path.mkdir(), errors.NotAStore, "empty directory"),
        (lambda path: path.write_bytes(b""), errors.Unsupported, "--as"),
        (lambda path: path.write_bytes(bytes(range(1, 100))), errors.Unsupported, "--as"),
        (lambda path: os.mkfifo(path), errors.Unsupported, "neither a file nor"),
        (lambda path: path.symlink_to(path), errors.Unreadable, "symbolic links"),
        (lambda path: path.symlink_to("/nowhere/disk"), errors.Missing, "a link to /nowhere/disk, where nothing is"),
        (lambda path: (path / "x").mkdir(parents=True), errors.Unsupported, "--as"),
    ],
    ids=["missing", "empty directory", "empty file", "noise", "fifo", "loop", "link to nothing", "no files"],
)
def test_what_cannot_be_told(tmp_path: Path, make, error, says) -> None:  # type: ignore[no-untyped-def]
    """One error each, that says what to do."""
    path = tmp_path / "thing"
    make(path)
    with pytest.raises(error, match=says):
        recognise(path)


def test_the_store_in_a_directory_is_named(tmp_path: Path) -> None:
    """As by commands that take stores alone; `--as` would lead nowhere."""
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    with pytest.raises(errors.Unsupported, match=r"did you mean .*/store\?"):
        recognise(tmp_path)


def test_as_overrides_and_is_checked(tmp_path: Path) -> None:
    """`--as` names a kind that there is."""
    path = tmp_path / "thing"
    path.write_bytes(b"?")
    assert recognise(path, "timer-log").kind == "timer-log"
    with pytest.raises(errors.InvalidInput, match="timer-log"):
        recognise(path, "timer_log")


@pytest.mark.parametrize(("name", "place", "says"), [("5.3.3-rocksdb", "consumequeue/CURRENT", "RocksDB")])
def test_strangers_in_a_known_place(name: str, place: str, says: str, tmp_path: Path) -> None:
    """Are not taken for what usually lies there."""
    with pytest.raises(errors.Unsupported, match=says):
        recognise(unpack(name, tmp_path) / place)


def test_kinds_that_are_not_handled_are_named(tmp_path: Path) -> None:
    """Not guessed."""
    (tmp_path / "compaction").mkdir()
    (tmp_path / "compaction" / "what").write_bytes(b"?")
    with pytest.raises(errors.Unsupported, match="compaction/"):
        recognise(tmp_path / "compaction" / "what")


@pytest.mark.parametrize(
    ("name", "place", "kind"),
    [
        ("5.3.3-dledger", "dledger-n0/index", "dledger-index"),
        ("5.3.3-dledger", "dledger-n0/index/00000000000000000000", "dledger-index"),
        ("5.3.3-dledger", "dledger-n0/checkpoint", "dledger-state"),
        ("5.3.3-dledger", "dledger-n0/checkpoint.bak", "dledger-state"),
        ("5.3.3-dledger", "checkpoint", "checkpoint"),
        ("5.3.3-dledger", "index", "index-file"),
        ("5.3.3-dledger", "compaction", "compaction-log"),
        ("5.3.3-compaction", "compaction/compactionLog/state", "compaction-log"),
        ("5.3.3-compaction", "compaction/compactionCq/state/1", "sparse-consume-queue"),
        ("5.3.3-compaction", "compaction/position-checkpoint.bak", "position-checkpoint"),
    ],
)
def test_places_of_their_own(name: str, place: str, kind: str, tmp_path: Path) -> None:
    """What lies there is of another kind than elsewhere."""
    assert recognise(unpack(name, tmp_path) / place).kind == kind


@pytest.mark.parametrize(
    ("name", "place", "kind"),
    [
        ("5.3.3-rocksdb", "consumequeue", "rocksdb"),
        ("5.3.3-rocksdb", "config/topics", "rocksdb"),
        ("5.3.3-rocksdb", "config", "config"),
        ("5.5.0-rocksdb-killed", "rocksdbstore", "rocksdb"),
        ("5.5.0-clean", "config/topics.json", "topics"),
        ("5.5.0-clean", "config/topics.json.bak", "topics"),
        ("5.5.0-clean", "config/transactionMetrics", "transaction-metrics"),
        ("5.5.0-timer-clean", "config/timermetrics", "timer-metrics"),
        ("5.3.3-timer-killed", "config/timermetrics.bak", "timer-metrics"),
        ("4.9.7-cqext", "config/consumerFilter.json.bak", "consumer-filter"),
    ],
)
def test_configuration_and_databases(name: str, place: str, kind: str, tmp_path: Path) -> None:
    """By their names and what is in them, in the store and elsewhere."""
    path = unpack(name, tmp_path / "stores") / place
    assert recognise(path).kind == kind
    moved = tmp_path / path.name
    path.rename(moved)
    assert recognise(moved).kind == kind


@pytest.mark.parametrize("name", ["4.3.1-clean", "4.9.7-lmq", "4.9.7-cqext", "5.3.3-clean"])
def test_configuration_that_has_lost_its_name(name: str, tmp_path: Path) -> None:
    """Told by its tables, as far as it has any entries."""
    for kind, path, _ in config_files(unpack(name, tmp_path / "stores") / "config"):
        assert recognise(path).kind == kind
        records = [r["type"] for r in read_config_file(path, kind).records()]
        copy = tmp_path / "copy.bin"
        copy.write_bytes(path.read_bytes())
        if kinds.KINDS[kind].record_type in records:
            assert recognise(copy).kind == kind, path


@pytest.mark.parametrize(
    ("name", "place", "kind"),
    [
        ("5.3.3-dledger", "dledger-n0/index/00000000000000000000", "dledger-index"),
        ("4.9.7-dledger", "dledger-n0/index/00000000000000000000", "dledger-index"),
        ("5.3.3-compaction", "compaction/position-checkpoint", "position-checkpoint"),
        # nothing in these bytes tells where they come from
        ("5.3.3-compaction", "compaction/compactionLog/state/0/" + "0" * 20, "commit-log"),
        ("5.3.3-compaction", "compaction/compactionCq/state/0/" + "0" * 20, "batch-consume-queue"),
    ],
)
def test_copies_of_rare_kinds(name: str, place: str, kind: str, tmp_path: Path) -> None:
    """By content; also the first bytes of one."""
    path = unpack(name, tmp_path) / place
    copy = tmp_path / "copy.bin"
    path.rename(copy)
    assert recognise(copy).kind == kind
    if kind == "dledger-index":
        for size in (6400, 64, 32):
            os.truncate(copy, size)
            assert recognise(copy).kind == kind


def test_a_configured_log_makes_no_store_of_its_own_directory(tmp_path: Path) -> None:
    root = unpack("5.3.3-clean", tmp_path)
    for name, kind in (("commitlog", "commit-log"), ("index", "index-file")):
        config = BrokerConfig({"storePathCommitLog": str(root / "commitlog")})
        assert recognise(root / name, config=config).kind == kind
    (root / "commitlog").rename(root / "log")
    config = BrokerConfig({"storePathCommitLog": str(root / "log")})
    assert recognise(root, config=config).kind == "store"
    assert recognise(root / "log", config=config).kind == "commit-log"
