"""The reading commands over stores whose files somebody compressed: the answers of the plain ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..packing import pack, pack_below
from ..slices import pick
from ..stores import ALL, config_set, messages, unpack
from .datadriven import Result, run_here
from .test_reads_only import nothing_is_written

STORES = ("4.3.1-killed", "4.9.7-multipath", "4.9.7-dledger", "5.3.3-v2", "5.3.3-timer-clean")
CONFIGURED = ("multipath",)


def questions(name: str) -> Iterator[list[str]]:
    """Commands by every address there is, of a message in the middle of the store."""
    known = [m for m in messages(name) if not m["topic"].startswith(("RMQ_SYS", "rmq_sys"))]
    one = known[len(known) // 2]
    place = ["--topic", one["topic"], "--queue", str(one["queue_id"])]
    time = str(one["store_timestamp"])
    yield ["dump", "."]
    yield ["dump", ".", "--raw", "--count", "40"]
    yield ["inspect", ".", "--delays", "--now", "2030-01-01T00:00:00Z"]
    yield ["get", ".", "--at", str(one.get("position", one["physical_offset"]))]
    yield ["get", ".", "--message-id", one["offset_msg_id"]]
    yield ["get", ".", *place, "--offset", str(one["queue_offset"])]
    yield ["get", ".", *place, "--reverse", "--limit", "3"]
    yield ["get", ".", "--since", time]
    yield ["get", ".", "--until", time, "--reverse", "--limit", "20"]
    yield ["get", ".", *place, "--offset-at", time]
    yield ["get", ".", "--where", "TAGS IS NOT NULL AND @queue_id < 2"]
    yield ["get", ".", "--topic", one["topic"], "--grep", "a|o"]
    if one["properties"].get("UNIQ_KEY"):
        yield ["get", ".", "--unique-key", one["properties"]["UNIQ_KEY"]]
        told = ["--now", time, "--fields", "via,position,events,for_all,groups"]
        yield ["trace", ".", one["properties"]["UNIQ_KEY"], *told]
    for part in ("consumequeue", "index", "timerlog", "consumequeue_ext", "batchconsumequeue"):
        yield ["dump", part]
        yield ["inspect", part]


def answer(root: Path, arguments: list[str], options: list[str]) -> Result:
    """What a command says of the store at `root`; names of compressed files as before."""
    command, path, *rest = arguments
    result = run_here([command, str(root / path), *rest, *options, "--format", "json"])
    out, said = (text.replace(str(root), "") for text in result[:2])
    for suffix in (".gz", ".zst"):
        out, said = out.replace(suffix, ""), said.replace(suffix, "")
    return Result(out, said, result.code)


def without_bytes(result: Result) -> Result:
    """What lies on the disk is another number of bytes."""
    record = json.loads(result.stdout) if result.stdout.startswith("{") else {}
    if record.get("type") != "file":
        return result
    return result._replace(stdout=json.dumps(record | {"bytes": 0}))


def check(name: str, how: str, tmp_path: Path) -> None:
    plain = unpack(name, tmp_path / "plain")
    packed = tmp_path / "packed" / name
    shutil.copytree(plain, packed, symlinks=True)
    assert pack_below([path for path in packed.iterdir() if path.is_dir()], how)
    roots = [plain, packed]
    configured = any(word in name for word in CONFIGURED)
    options = [config_set(name, root) if configured else [] for root in roots]
    sets = [[word for value in found for word in ("--set", value)] for found in options]
    with nothing_is_written(packed):
        for question in questions(name):
            if not (plain / question[1]).is_dir():
                continue
            expected, found = (
                without_bytes(answer(root, question, chosen)) for root, chosen in zip(roots, sets, strict=True)
            )
            assert found == expected, (name, how, question)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "how"),
    [
        *((name, "gzip") for name in STORES),
        *((name, "zstd") for name in STORES[:2]),
        *(pytest.param(name, "zstd", marks=pytest.mark.slow) for name in STORES[2:]),
    ],
)
def test_answers_are_those_of_the_plain_store(name: str, how: str, tmp_path: Path) -> None:
    check(name, how, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["gzip members", "zstd frames"])
@pytest.mark.parametrize("name", pick([n for n in ALL if "large" not in n], "compressed stores"))
def test_of_all_stores(name: str, how: str, tmp_path: Path) -> None:
    check(name, how, tmp_path)


def description(root: Path) -> dict[str, Any]:
    result = run_here(["inspect", str(root), "--format", "json"])
    assert result.code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_inspect_tells_of_compressed_files(tmp_path: Path) -> None:
    """The same store, but no broker starts on it; a compressed file beside its plain one is named."""
    root = unpack("5.3.3-clean", tmp_path)
    before = description(root)
    files = sorted((root / "commitlog").iterdir())
    packed = pack(files[0])
    after = description(root)
    assert after.pop("notes") == ["1 log file is compressed: no broker reads it"]
    assert after["next_start"]["start_file"] == ""
    assert after["next"][0] == f"gunzip {packed}" and after["verdict"]["status"] == "damaged"
    other = dict.fromkeys(("next_start", "notes", "verdict", "next"))
    assert {**after, **other} == {**before, **other}
    shutil.copy(packed, root / "aside")
    packed.unlink()
    files[0].write_bytes(b"")
    unpack("5.3.3-clean", tmp_path)
    shutil.copy(root / "aside", packed)
    [foreign] = [f for f in description(root)["foreign_files"] if "commitlog" in f["path"]]
    assert foreign == {"path": str(packed), "reason": f"the same position as {files[0]}"}


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["gzip", "zstd"])
def test_one_file_under_any_name(how: str, tmp_path: Path) -> None:
    """Kind and positions are told from the content."""
    root = unpack("5.3.3-clean", tmp_path)
    chosen = {
        "commit-log": sorted((root / "commitlog").iterdir())[1],
        "consume-queue": root / "consumequeue" / "orders" / "0" / f"{0:020d}",
        "index-file": min((root / "index").iterdir()),
    }
    for kind, path in chosen.items():
        expected = run_here(["dump", str(path), "--format", "csv"]).stdout
        packed = pack(path, how)
        names = {"copy.bin", packed.name, "x.gz"}
        for name in names if kind != "consume-queue" else {packed.name}:
            copy = tmp_path / name
            shutil.copy(packed, copy)
            dumped = run_here(["dump", str(copy), "--format", "csv"])
            assert (dumped.code, dumped.stderr) == (0, ""), (kind, name)
            lines = dumped.stdout
            if kind == "consume-queue":  # a place names topic and queue
                lines = lines.replace("_unit,,,", "_unit,orders,0,")
            assert lines.replace(name, path.name) == expected, (kind, name)
            inspected = run_here(["inspect", str(copy), "--format", "json"])
            assert json.loads(inspected.stdout)["kind"] == kind
            copy.unlink()


@pytest.mark.parametrize("how", ["gzip", "zstd"])
def test_other_files(how: str, tmp_path: Path) -> None:
    """Those that are one record, one table, one wheel."""
    root = unpack("5.3.3-timer-clean", tmp_path)
    for name in ("checkpoint", "config/topics.json", "config/timercheck", "timerwheel"):
        path = root / name
        expected = run_here(["dump", str(path), "--format", "ndjson"])
        assert expected.stdout
        packed = pack(path, how)
        found = run_here(["dump", str(packed), "--format", "ndjson"])
        assert found.stdout.replace(packed.name, path.name) == expected.stdout, name
        assert (found.code, found.stderr) == (0, "")


def test_no_room_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that says where the room is needed."""
    root = unpack("5.3.3-clean", tmp_path)
    packed = pack(min((root / "commitlog").iterdir()))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    result = run_here(["dump", str(packed)])
    assert result.code == 5
    assert result.stderr.startswith(f"mqstore: cannot decompress (No such file or directory): {packed}")
    assert "TMPDIR" in result.stderr


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["gzip", "zstd"])
def test_broken_files_are_damage(how: str, tmp_path: Path) -> None:
    """Cut: what is there is printed, a record or a line at the end tells of the rest."""
    root = unpack("5.3.3-clean", tmp_path)
    for part, minimum in (("commitlog", 100), ("consumequeue/orders/0", 0), ("index", 1)):
        directory = root / part
        path = pack(min(directory.iterdir()), how)
        data = path.read_bytes()
        path.write_bytes(data[: len(data) * 97 // 100])
        for place in (directory, path):
            result = run_here(["dump", str(place), "--format", "ndjson"])
            assert result.code == 0
            assert len(result.stdout.splitlines()) >= minimum
            assert "damaged range" in result.stderr
            records = [json.loads(line) for line in result.stdout.splitlines()]
            told = [r["reason"] for r in records if r["type"] == "damage"] or [result.stderr]
            assert f"{path.name} does not decompress: it is cut off" in told[-1]
            assert (len(told) > 0 and "mqstore" not in told[-1]) == (part == "commitlog")
    damaged = description(root)["damaged_bytes"]
    assert damaged > 0
    for command in (["inspect", str(root)], ["get", str(root), "--topic", "orders"]):
        assert run_here(command).code == 0


def test_bombs_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqstore.store.disk.compressed.LARGEST_BYTES", 1 << 16)
    root = unpack("5.3.3-clean", tmp_path)
    packed = pack(max((root / "commitlog").iterdir()))
    for arguments in (["dump", str(root)], ["inspect", str(packed)], ["get", str(root), "--at", "0"]):
        result = run_here(arguments)
        assert result.code == 5
        assert str(packed) in result.stderr
        assert "more than 65536 bytes" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["put", "STORE", "orders", "hello"],
        ["recover", "STORE"],
        ["recover", "STORE", "--apply", "--yes"],
        ["undo", "STORE", "--yes"],
    ],
    ids=lambda words: " ".join(words[:1] + words[2:]),
)
def test_commands_that_write_refuse(tmp_path: Path, arguments: list[str]) -> None:
    root = unpack("5.3.3-killed", tmp_path)
    packed = pack(min((root / "commitlog").iterdir()), "zstd")
    with nothing_is_written(root):
        result = run_here([str(root) if word == "STORE" else word for word in arguments])
    assert result.code == 5
    assert result.stdout == ""
    assert result.stderr == (
        "mqstore: cannot change a store with a compressed file: no broker reads it: "
        f"{packed}; decompress the file in its directory\n"
    )
