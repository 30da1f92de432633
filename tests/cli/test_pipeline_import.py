"""`pipeline import`: what was exported becomes a store with the same messages, whole or not at all."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mqstore.cli.app import run
from mqstore.store import library
from mqstore.store.arrow import append_rows
from mqstore.store.disk.files import Files
from mqstore.store.output.stage import Stage
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.run import verify
from mqstore.store.verify.verdict import Status

from ..conftest import STORES_LEFT_MS
from ..store.arrow.rows import given, table_of
from ..stores import config_set, unpack
from .datadriven import run_here

SIZES = {"mappedFileSizeCommitLog": "262144", "maxHashSlotNum": "1000", "maxIndexNum": "4000"}


def imported(*words: str | Path) -> int:
    sizes = [word for name, value in SIZES.items() for word in ("--set", f"{name}={value}")]
    return run(["pipeline", "import", *map(str, words), *sizes, "--as-broker", "5.3"])


def test_there_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, new = unpack("5.3.3-v2", tmp_path), tmp_path / "new"
    rows = table_of(root, body="plain")
    (tmp_path / "in").mkdir()
    for number in range(2):
        some = rows.take(list(range(number, rows.num_rows, 2)))
        pq.write_table(some, tmp_path / f"in/{number}.parquet")
    assert imported(tmp_path / "in", "--to", new, "--format=json") == 0
    counts = {"messages": rows.num_rows, "left_out": 0, "skipped": 0, "marked": 0, "refused": 0, "tombstones": 0}
    said = json.loads(capsys.readouterr().out)
    assert said == {"type": "import", "to": str(new), **counts}
    assert not (new / ".mqstore").exists()
    assert given(table_of(new, body="plain")) == given(rows)
    with StoreReader(new) as store:
        assert verify(store).status is Status.CLEAN


@pytest.mark.parametrize("form", ["parquet", "arrow", "stream"])
def test_the_rate_limits_reading(form: str, tmp_path: Path, waited: list[float]) -> None:
    """By pyarrow, whose reading knows of no rate: the files are read at least once."""
    rows = table_of(unpack("5.3.3-v2", tmp_path), body="plain")
    path, opens = tmp_path / f"rows.{form.replace('stream', 'arrow')}", {"arrow": pa.ipc.new_file}
    if form == "parquet":
        pq.write_table(rows, path)
    else:
        with opens.get(form, pa.ipc.new_stream)(path, rows.schema) as file:
            file.write_table(rows)
    assert imported(path, "--to", tmp_path / "plain") == 0 and not waited
    assert imported(path, "--to", tmp_path / "slow", "--rate", "1K") == 0
    assert sum(waited) > 0.9 * path.stat().st_size / 1024
    assert given(table_of(tmp_path / "slow", body="plain")) == given(rows)


def test_the_configuration_names_no_place_of_the_new_store(tmp_path: Path) -> None:
    """broker.conf has storePathCommitLog, of another store: nothing there is read, or written."""
    root, log = unpack("5.3.3-v2", tmp_path), tmp_path / "log"
    pq.write_table(table_of(root, body="plain"), tmp_path / "a.parquet")
    place = f"storePathCommitLog={log}"
    assert imported(tmp_path / "a.parquet", "--to", tmp_path / "new", "--set", place) == 0
    assert not log.exists() and (tmp_path / "new/commitlog").is_dir()


@pytest.mark.parametrize("published", [1, 2])  # 1: checkpoint alone, which no plan is made for
def test_a_half_published_store_is_told_and_finished(
    published: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything else, by whoever looks at it: nothing changes it but the command that ends it."""
    new, files = tmp_path / "a {b}", [tmp_path / f"{number}.parquet" for number in range(4)]
    for number, path in enumerate(files):
        pq.write_table(table_of(unpack("5.3.3-v2", tmp_path / path.stem), body="plain").slice(number, 1), path)

    sealed: list[Mapping[str, Any]] = []
    seal = Stage.seal

    def noted(stage: Stage, manifest: Mapping[str, Any]) -> None:
        sealed.append(manifest)
        seal(stage, manifest)

    with monkeypatch.context() as patched:
        patched.setattr(Stage, "seal", noted)
        assert imported(*files[: published * 2], "--to", new) == 0
    stage = Stage.begin(new, Files())
    for path in sorted(new.iterdir())[1 + published :]:  # behind the folder of stages
        path.rename(stage.tree / path.name)
    stage.seal(sealed[0])
    before = {path: path.read_bytes() for path in new.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert run(["verify", str(new), "--format", "json"]) == 1
    first = json.loads(capsys.readouterr().out)[0]
    assert first["code"] == "I-185"
    assert "pipeline import was interrupted" in first["message"]
    for words in (["recover"], ["repair", "--all"], ["offsets", "--reset", "*@*=earliest"]):
        for more in ([], ["--apply", "--yes"]):
            assert run([words[0], str(new), *words[1:], *more])
            said = capsys.readouterr()
            assert first["repair"] in said.out + said.err
    assert {path: path.read_bytes() for path in new.rglob("*") if path.is_file()} == before
    assert run(shlex.split(first["repair"])[1:]) == 0
    assert not (new / ".mqstore").exists()
    assert table_of(new, body="plain").num_rows == published * 2
    with StoreReader(new) as store:
        assert verify(store).status is Status.CLEAN


def test_corrupted_bodies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = unpack("5.3.3-killed-bit", tmp_path)
    rows = table_of(root, body="plain")
    bad = rows.column("body_crc_ok").to_pylist().count(False)
    assert bad, "there is something to tell"
    pq.write_table(rows, tmp_path / "a.parquet")
    assert imported(tmp_path / "a.parquet", "--to", tmp_path / "fail") == 1
    assert "the body failed its checksum" in capsys.readouterr().err
    assert not (tmp_path / "fail").exists()
    for how, kept in (("skip", 0), ("mark", bad)):
        assert imported(tmp_path / "a.parquet", "--to", tmp_path / how, "--on-damage", how) == 1
        assert "failed" in capsys.readouterr().err
        found = table_of(tmp_path / how, body="plain").column("body_crc_ok").to_pylist()
        assert (found.count(False), len(found)) == (kept, rows.num_rows - bad + kept)


def test_what_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imported(tmp_path / "none", "--to", tmp_path / "new") == 5
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 cut")
    assert imported(tmp_path / "bad.parquet", "--to", tmp_path / "new") == 2
    assert "bad.parquet" in capsys.readouterr().err
    pq.write_table(table_of(unpack("5.3.3-v2", tmp_path)), tmp_path / "a.parquet")
    assert imported(tmp_path / "a.parquet", "--to", tmp_path / "new") == 2, "there are no bodies"
    assert "body: missing" in capsys.readouterr().err
    monkeypatch.setattr(append_rows, "sorted_batches", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert imported(tmp_path / "a.parquet", "--to", tmp_path / "new") == 130
    assert not (tmp_path / "new").exists()


def test_options_that_ask_for_a_rocksdb_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    """The command named is for the new store, and does what it says once the store was made without the options."""
    root, new = unpack("5.3.3-v2", tmp_path), tmp_path / "new"
    pq.write_table(table_of(root, body="plain"), tmp_path / "a.parquet")
    sizes = [word for name, value in SIZES.items() for word in ("--set", f"{name}={value}")]
    same = ["--to", str(new), "--as-broker", "5.3", *sizes]
    imports = ["pipeline", "import", str(tmp_path / "a.parquet"), *same]
    compacts = ["pipeline", "compact", str(root), "--topic", "*", *same]
    said = set()
    for words in (imports, compacts):
        ended = run_here([*words, "--set", "storeType=defaultRocksDB"])
        assert ended.code == 5 and not ended.stdout
        said.add(ended.stderr)
        assert not [path for path in tmp_path.iterdir() if "new" in path.name]
    (message,) = said
    proposed = message.split("`")[1]
    assert shlex.split(proposed)[1:3] == ["repair", str(new)]
    assert run_here(imports).code == 0
    assert run_here([*shlex.split(proposed)[1:], "--yes"]).code == 0
    assert run_here(["verify", str(new), *sizes, "--set", "storeType=defaultRocksDB"]).code == 0


TIMED = "5.1.4-timer-clean"


@pytest.fixture
def long_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel reaches back a week."""
    clock = SimpleNamespace(time_ns=lambda: (STORES_LEFT_MS + 30 * 86_400_000) * 1_000_000)
    monkeypatch.setattr("mqstore.store.search.store.time", clock)


def _made_of_timed_messages(how: str, tmp_path: Path) -> tuple[Path, list[str], str]:
    """The new store, its options, and what was told on stderr."""
    root, new = unpack(TIMED, tmp_path), tmp_path / "new"
    named = (text for text in config_set(TIMED, root) if not text.startswith("storePath"))
    options = [word for text in named for word in ("--set", text)]
    pq.write_table(table_of(root, body="plain"), tmp_path / "a.parquet")
    words = {
        "import": ["pipeline", "import", str(tmp_path / "a.parquet"), "--to", str(new)],
        "compact": ["pipeline", "compact", str(root), "--topic", "*", "--to", str(new)],
        "put": ["put", str(new), "--from", str(tmp_path / "a.parquet"), "--no-answers", "--keep-times"],
    }
    ended = run_here([*words[how], "--as-broker", "5.1", *options])
    assert ended.code == 0, ended.stderr
    return new, options, ended.stderr


@pytest.mark.usefixtures("long_after")
@pytest.mark.parametrize("how", ["import", "compact"])
def test_a_store_with_timed_messages_has_files_of_the_timer(how: str, tmp_path: Path) -> None:
    """Without them a start fires nothing that has long been due, and other messages again."""
    new, options, told = _made_of_timed_messages(how, tmp_path)
    assert not told
    assert (new / "timerwheel").exists() and not (new / ".mqstore").exists()
    checked = run_here(["verify", str(new), "--broker-version", "5.1", *options])
    assert checked.code == 0, checked.stdout


@pytest.mark.usefixtures("long_after")
def test_put_names_the_command_that_names_the_repair_of_the_timer(tmp_path: Path) -> None:
    new, options, told = _made_of_timed_messages("put", tmp_path)
    named = _named_by_put(told, new)
    checked = run_here([*named, "--broker-version", "5.1", "--format", "ndjson"])
    assert checked.code == 1
    repairs = {row["repair"] for row in map(json.loads, checked.stdout.splitlines()) if row.get("repair")}
    (repair,) = (shlex.split(text) for text in repairs)
    assert "--timer" in repair
    assert run_here([*repair[1:], "--yes"]).code == 0
    assert run_here(["verify", str(new), "--broker-version", "5.1", *options]).code == 0


def test_put_promises_no_repair_of_a_timer_whose_messages_are_all_delivered(tmp_path: Path) -> None:
    root, new = unpack("5.3.3-pop", tmp_path), tmp_path / "new"
    pq.write_table(table_of(root, body="plain"), tmp_path / "a.parquet")
    words = ["put", str(new), "--from", str(tmp_path / "a.parquet"), "--no-answers", "--as-broker", "5.3"]
    named = _named_by_put(run_here(words).stderr, new)
    assert named[-2:] == ["--broker-version", "5.3"]
    checked = run_here(named)
    assert checked.code == 0 and "repair" not in checked.stdout, checked.stdout


def _named_by_put(told: str, root: Path) -> list[str]:
    """The words of the command that put names for timed messages, without the program."""
    assert "names the repair, if one is needed" in told
    words = shlex.split(told.split("`")[1])
    assert words[:3] == ["mqstore", "verify", str(root)]
    return words[1:]


def test_what_is_left_to_do_with_a_new_store_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = unpack("5.3.3-v2", tmp_path)
    pq.write_table(table_of(root, body="plain"), tmp_path / "a.parquet")
    monkeypatch.setattr(library, "settle_timers", lambda *_, **__: "more repairs are needed")
    for name, words in (("import", [str(tmp_path / "a.parquet")]), ("compact", [str(root), "--topic", "*"])):
        options = ["--as-broker", "5.3", "--set", "maxHashSlotNum=97"]
        ended = run_here(["pipeline", name, *words, "--to", str(tmp_path / name), *options])
        assert ended.code == 1
        then = f"mqstore recover {tmp_path / name} --broker-version 5.3 --set maxHashSlotNum=97"
        assert f"{tmp_path / name}: more repairs are needed; see `{then}`" in ended.stderr, ended
        options += ["--set", "storeType=defaultRocksDB"]
        ended = run_here(["pipeline", name, *words, "--to", str(tmp_path / "none"), *options])
        then = "--as rocksdb --apply --broker-version 5.3 --set maxHashSlotNum=97 --set storeType=defaultRocksDB"
        assert ended.code == 5 and f"{then}`" in ended.stderr, ended
