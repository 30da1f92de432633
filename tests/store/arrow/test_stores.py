"""Which stores are meant, and what is asked of them."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyarrow import fs

from mqstore.store.arrow import stores
from mqstore.store.arrow.log_rows import LogSplit, damage_of, fields_of, parts_of, rows_of
from mqstore.store.arrow.stores import ReadOptions, in_directory, log_sizes, open_log, place_of, stores_of
from mqstore.store.disk import compressed
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.errors import InvalidInput, Missing, Refused, Unreadable, Unsupported

from ...packing import PACKERS, pack, pack_below
from ...stores import config as stores_config
from ...stores import unpack
from .rows import ask_of, rows


def test_directories_patterns_and_lists(tmp_path: Path) -> None:
    for name in ("a", "b", "[c]"):
        (tmp_path / name / "store").mkdir(parents=True)
    (tmp_path / "file").touch()
    a, b, c = (str(tmp_path / name / "store") for name in ("a", "b", "[c]"))
    listed = tmp_path / "list"
    listed.write_text(f"# the fleet\n{a}\n\n  {tmp_path}/?/store  \ns3://bucket/store/\n")
    assert stores_of([f"@{listed}", b, str(tmp_path / "none")]) == [
        *(a, b, "s3://bucket/store", str(tmp_path / "none"))
    ]
    assert stores_of([f"{tmp_path}/*/store"]) == sorted([a, b, c])
    link = tmp_path / "link"
    link.symlink_to(a)
    assert stores_of([str(link), a, c]) == [str(link), c], "a link to a store is the same one"
    assert stores_of([c]) == [c], "a directory of that name is no pattern"


def test_a_file_uri_is_the_directory_that_it_names(tmp_path: Path) -> None:
    root = tmp_path / "a b?c#d%é"
    root.mkdir()
    uri = root.as_uri()
    assert "%20" in uri and stores_of([uri + "/", str(root)]) == [str(root)]
    assert stores_of([f"{tmp_path.as_uri()}/s#1?x"]) == [f"{tmp_path}/s#1?x"], "a file has neither query nor fragment"
    link = tmp_path / "link"
    link.symlink_to(root)
    assert place_of(uri) == place_of(link.as_uri()) == place_of(str(root))
    assert stores_of(["file:///"]) == ["/"]
    assert stores_of(["file://host/data/store/"]) == ["file://host/data/store"], "no directory of this machine"


def test_words_that_mean_nothing(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("@other\n")
    (tmp_path / "zero").write_text("/data\0/store\n")
    for words, kind in (
        ([], InvalidInput),
        ([str(tmp_path / "none*")], Missing),
        ([f"@{tmp_path}/none"], Missing),
        ([f"@{tmp_path}/list"], InvalidInput),
        ([f"@{tmp_path}/zero"], InvalidInput),
        (["file:///data%00/store"], InvalidInput),
        ([f"@{tmp_path}"], Unreadable),
    ):
        with pytest.raises(kind):
            stores_of(words)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"topcs": "a"}, "no option 'topcs'"),
        ({"fields": "topic,nothing"}, "no column 'nothing'"),
        ({"since": "tomorrow-ish"}, "tomorrow-ish"),
        ({"body": "yes"}, "not one of none, plain, stored"),
        ({"split_bytes": "-1"}, "split_bytes"),
        ({"split_bytes": "64"}, "split_bytes: 64 is below 4096 bytes"),
        ({"split_bytes": "0"}, "split_bytes"),
        ({"broker_config": "[1]"}, "not a JSON object"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, str], reason: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=reason):
        fields_of(ReadOptions.of({"path": str(tmp_path), **options}))


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of an object storage that has a directory's files."""
    place = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    from_uri = SimpleNamespace(from_uri=lambda uri: (place, uri.removeprefix("s3://")))
    known = SimpleNamespace(FileSystem=from_uri, FileSelector=fs.FileSelector, FileType=fs.FileType)
    monkeypatch.setattr(stores, "fs", known)
    return "s3://"


@pytest.mark.parametrize("how", PACKERS)
def test_compressed_files_of_a_log_in_object_storage(how: str, storage: str, tmp_path: Path) -> None:
    """The rows of the plain log, of all files and of one; what is cut off is damage as it is in a directory."""
    root = unpack("5.3.3-clean", tmp_path)
    uri, fields = storage + root.name, "position,topic,queue_offset"
    wanted = rows(ask_of(root, fields=fields))
    asked = ReadOptions.of({"path": uri, "fields": fields})
    first, *_ = sorted((root / "commitlog").iterdir())
    packed = pack(first, how)
    assert rows(asked) == wanted
    pack_below([root / "commitlog"], how)
    assert rows(asked) == wanted and not lost_of(asked)
    packed.write_bytes(packed.read_bytes()[: packed.stat().st_size // 2])
    assert lost_of(asked) == lost_of(ask_of(root)) != []
    assert rows(asked) == rows(ask_of(root, fields=fields)) != wanted


def lost_of(ask: ReadOptions) -> list[tuple[int | None, int | None]]:
    return [(one.position, one.size) for part in parts_of(ask) for one in damage_of(ask, part)]


def test_compressed_files_beside_the_plain_ones_are_not_read(storage: str, tmp_path: Path) -> None:
    root = unpack("5.3.3-clean", tmp_path)
    first, *_ = sorted((root / "commitlog").iterdir())
    data = first.read_bytes()
    pack(first)
    first.write_bytes(data)
    with open_log(storage + root.name, BrokerConfig()).queue as files:
        assert [Path(file.path).suffix for file in files.files] == ["", ""]
        assert [Path(file.path).suffix for file in files.foreign] == [".gz"]


@pytest.mark.parametrize("how", ["gzip", "zstd"])
def test_compressed_files_are_copied_as_they_are(how: str, storage: str, tmp_path: Path) -> None:
    """What reads the copy unpacks them."""
    root = unpack("5.3.3-clean", tmp_path)
    packed = pack_below([root / "commitlog"], how)
    with in_directory(storage + root.name) as place:
        for path in packed:
            assert (place.folder / "commitlog" / path.name).read_bytes() == path.read_bytes()


def test_a_listing_of_object_storage_unpacks_the_last_file_alone(storage: str, tmp_path: Path) -> None:
    root = unpack("5.3.3-clean", tmp_path)
    pack_below([root / "commitlog"], "gzip")
    compressed.forget_all()
    assert log_sizes([storage + root.name], BrokerConfig())[0] == {storage + root.name: 2 << 18}
    assert len(compressed._kept) == 1


@pytest.mark.parametrize("how", ["gzip", "zstd"])
def test_what_a_compressed_object_says_of_its_size_is_fetched_once(
    how: str, storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often its log is opened; one in its place is another."""
    root = unpack("5.3.3-clean", tmp_path)
    first, *_ = packed = pack_below([root / "commitlog"], how)
    compressed.forget_all()
    fetched, part_of = list[str](), stores._PackedObject._part

    def counting(self: stores._PackedObject, *place: int) -> bytes:
        fetched.append(Path(self.path).name)
        return part_of(self, *place)

    monkeypatch.setattr(stores._PackedObject, "_part", counting)
    for _ in range(3):
        open_log(storage + root.name, BrokerConfig()).queue.close()
    assert sorted(fetched) == sorted(path.name for path in packed for _ in range(1 + (how == "gzip")))
    os.utime(first, ns=(1, 1))
    fetched.clear()
    open_log(storage + root.name, BrokerConfig()).queue.close()
    assert set(fetched) == {first.name}


@pytest.mark.parametrize("left", [50_000, 0, None])
@pytest.mark.parametrize("file", [0, 1])
@pytest.mark.parametrize("split_bytes", [1 << 18, 1 << 20])
def test_an_object_that_shrinks_behind_its_listing_is_told(
    file: int, left: int | None, split_bytes: int, storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the plan of a read and its tasks, or behind the listing of a task: never a log that ends there."""
    root = unpack("5.3.3-clean", tmp_path)
    asked = replace(ReadOptions.of({"path": storage + root.name, "on_damage": "fail"}), split_bytes=split_bytes)
    path = sorted((root / "commitlog").iterdir())[file]
    data, wanted = path.read_bytes(), rows(asked)

    def shrink() -> None:
        path.unlink(missing_ok=True) if left is None else path.write_bytes(data[:left])

    def read(parts: list[LogSplit]) -> int:
        return sum(len(batch) for part in parts for batch in rows_of(asked, part, lambda lost: None))

    planned = parts_of(asked)
    assert read(planned) == len(wanted)
    shrink()
    with pytest.raises(Unreadable):
        read(planned)
    path.write_bytes(data)
    listed = stores.RemoteFiles.__init__

    def shrinking(self: stores.RemoteFiles, root: str) -> None:
        listed(self, root)
        shrink()

    monkeypatch.setattr(stores.RemoteFiles, "__init__", shrinking)
    with pytest.raises(Unreadable):
        read(planned)


def test_a_copy_that_is_shorter_than_what_was_listed_is_told(
    storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, fetch = unpack("5.3.3-clean", tmp_path), stores._fetch

    def shrinking(place: fs.FileSystem, info: fs.FileInfo, path: Path) -> None:
        (root.parent / info.path).write_bytes(b"")
        fetch(place, info, path)

    monkeypatch.setattr(stores, "_fetch", shrinking)
    with pytest.raises(Unreadable, match="the file has changed"), in_directory(storage + root.name, ("consumequeue",)):
        pass


@pytest.mark.parametrize("remote", [False, True])
def test_a_log_whose_files_all_have_other_names_is_refused(remote: bool, storage: str, tmp_path: Path) -> None:
    root = unpack("5.3.3-clean", tmp_path)
    place = storage + root.name if remote else str(root)
    first, second = sorted((root / "commitlog").iterdir())
    first.rename(first.with_suffix(".bz2"))
    open_log(place, BrokerConfig()).queue.close()
    second.rename(second.with_suffix(".lz4"))
    with pytest.raises(Unsupported, match=r"has a name that can be read: .*000\.bz2; a name"):
        open_log(place, BrokerConfig())
    for path in (root / "commitlog").iterdir():
        path.unlink()
    (root / "commitlog" / "lost+found").mkdir()
    if remote:
        open_log(place, BrokerConfig()).queue.close()
        return
    with pytest.raises(Refused, match="no commit log, but full queues"):
        open_log(place, BrokerConfig())
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    open_log(place, BrokerConfig()).queue.close()


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_file_that_is_not_read_because_of_its_name_is_missing(
    number: int, remote: bool, storage: str, tmp_path: Path
) -> None:
    """Between the others, in front of them or behind them, once, however the log is cut."""
    root = unpack("5.3.3-ha-master", tmp_path)
    file = sorted((root / "commitlog").iterdir())[number]
    file.rename(file.with_suffix(".bz2"))
    ask = ReadOptions.of({"path": storage + root.name if remote else str(root)})
    for size in (0, 20_000, 1 << 17):
        parts = parts_of(replace(ask, split_bytes=size))
        (lost,) = (one for part in parts for one in damage_of(ask, part))
        assert (lost.position, lost.size, lost.reason[:9]) == (int(file.name), 1 << 17, "missing: ")
        assert (".bz2 is not read" in lost.reason) == (number != 1)


def test_a_log_that_goes_on_in_dledger_is_refused_in_object_storage(storage: str, tmp_path: Path) -> None:
    """The older one can be read alone."""
    root, old = unpack("5.3.3-dledger", tmp_path), unpack("5.3.3-v2", tmp_path)
    with pytest.raises(Unsupported, match="the log of dledger-n0 is not read in object storage") as alone:
        open_log(storage + root.name, BrokerConfig())
    assert "enableDLegerCommitLog" not in (alone.value.hint or "")
    (old / "commitlog").rename(root / "commitlog")
    with pytest.raises(Unsupported, match="the log of dledger-n0 is not read in object storage"):
        open_log(storage + root.name, BrokerConfig())
    with open_log(storage + root.name, BrokerConfig({"enableDLegerCommitLog": "false"})).queue as files:
        assert files.size


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize(
    ("disk", "refusal"), [("d1", "queues name messages before"), ("d2", "the log has a gap at 262,144"), ("d3", "")]
)
def test_a_disk_of_the_log_that_is_not_mounted(disk: str, refusal: str, empty: bool, tmp_path: Path) -> None:
    """Refused where messages are missing, as by verify; the third one has none yet."""
    name = "5.3.3-multipath-killed"
    root = unpack(name, tmp_path)
    config = BrokerConfig(stores_config(name, root))
    with open_log(str(root), config).queue as files:
        whole = files.size
    (root / disk).rename(tmp_path / "away")
    if empty:
        (root / disk / "commitlog").mkdir(parents=True)
    if refusal:
        with pytest.raises(Refused, match=f"{refusal}.*/{disk}/commitlog is {'empty' if empty else 'not there'}"):
            open_log(str(root), config)
    else:
        with open_log(str(root), config).queue as files:
            assert files.size == whole - files.file_size


def test_a_log_none_of_whose_disks_is_mounted(tmp_path: Path) -> None:
    root = unpack("5.3.3-multipath-killed", tmp_path)
    config = BrokerConfig(stores_config("5.3.3-multipath-killed", root))
    for disk in ("d1", "d2", "d3"):
        (root / disk).rename(tmp_path / disk)
    (root / "d1/commitlog").mkdir(parents=True)
    with pytest.raises(Refused, match="no commit log, but full queues: is the path wrong, or a disk not mounted"):
        open_log(str(root), config)
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    with pytest.raises(Missing, match="no commitlog here"):
        open_log(str(root), config)
