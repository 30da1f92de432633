"""A data set that is there: added to, replaced, or what has come since the last time.

Cut off at every step and run again, no message is lost and none is there twice.
"""

from __future__ import annotations

import errno
import json
import random
import shutil
import subprocess
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest

from mqstore.cli.app import run
from mqstore.pipeline.export import export
from mqstore.store.arrow import data_set
from mqstore.store.arrow.data_set import NOTE_FILE, DataSet, Mode
from mqstore.store.arrow.export_files import ExportHow
from mqstore.store.arrow.export_formats import ExportFormat
from mqstore.store.arrow.stores import ReadOptions
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import NoSpace, Refused, Unreadable
from mqstore.store.search import follow

from ...cli.small_store import small_store
from ...stores import unpack
from ..put.faults import CountingFiles, FailingFiles, Killed, KilledFiles
from .data_sets import HERE, SIZES, bodies, exported, names, prepared, put
from .rows import rows

pytestmark = pytest.mark.long


def test_a_target_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    root = put(tmp_path / "store", "a")
    exported(root, tmp_path / "out")
    with pytest.raises(Refused, match="the target is not empty"):
        exported(root, tmp_path / "out")


def test_append_adds_files_that_every_reader_takes(tmp_path: Path) -> None:
    root, out = put(tmp_path / "store", "a", "b"), tmp_path / "out"
    exported(root, out)
    before = {path: path.read_bytes() for path in out.iterdir()}
    report = exported(put(tmp_path / "other", "c"), out, Mode.APPEND)
    assert [file["path"] for file in report["files"]] == ["part-00001-00000-0.parquet"]
    assert {path: path.read_bytes() for path in before} == before
    assert sorted(bodies(out)) == ["a", "b", "c"]
    assert names(out) == ["part-00000-0.parquet", "part-00001-00000-0.parquet"]
    assert len(pd.read_parquet(out)) == pl.read_parquet(out).height == 3
    count = f"SELECT count(*) FROM '{out}/**/*.parquet'"
    assert duckdb.connect().execute(count).fetchall() == [(3,)]


@pytest.mark.parametrize("mode", [Mode.SINCE_LAST, Mode.APPEND, Mode.OVERWRITE])
def test_folders_of_days_that_no_calendar_has(mode: Mode, tmp_path: Path) -> None:
    """Also where an older version has named such a folder by a year of six digits."""
    given = [{"topic": "t", "body": str(n), "store_timestamp": ms} for n, ms in enumerate((1, 10**15, 2**62))]
    root, out, how = small_store(tmp_path / "store", *given), tmp_path / "out", ExportHow(by_day=True)
    exported(root, out, how=how)
    assert names(out) == ["date=1970-01-01", "date=9999-12-31"]
    assert sorted(bodies(out)) == ["0", "1", "2"] and len(pd.read_parquet(out)) == pl.read_parquet(out).height == 3
    (out / "date=9999-12-31").rename(out / "date=144740-04-12")
    exported(root, out, mode, how=how)
    assert len(bodies(out)) == (6 if mode is Mode.APPEND else 3)


@pytest.mark.parametrize("form", ["parquet", "arrow", "json", "csv", "avro"])
def test_every_format_tells_where_it_ended(form: str, tmp_path: Path) -> None:
    """Whatever its directory is called, and the store: a name need not be UTF-8."""
    root, out = put(tmp_path / "store\udcff", "a"), tmp_path / "out\udcff"
    how = ExportHow(ExportFormat(form), by_day=form == "json")
    exported(root, out, Mode.SINCE_LAST, how=how)
    put(root, "b")
    for wanted in (1, 0):
        report = exported(root, out, Mode.SINCE_LAST, how=how)
        assert sum(file["rows"] for file in report["files"]) == wanted
    there = {path.name for path in out.rglob("*") if path.is_file()}
    assert there - {NOTE_FILE} == {f"part-00000-0.{form}", f"part-00001-00000-0.{form}"}
    assert (NOTE_FILE in there) == (form in ("json", "csv"))


def test_another_kind_of_files_is_refused(tmp_path: Path) -> None:
    root, out = put(tmp_path / "store", "a"), tmp_path / "out"
    exported(root, out)
    others: list[tuple[str, dict[str, Any]]] = [
        ("column body: binary there, none requested", {"fields": "topic,position,store"}),
        ("column tags: none there, string requested", {"fields": "topic,body,position,store,tags"}),
        ("format: parquet there, json requested", {"how": ExportHow(ExportFormat("json"))}),
        ("folders by day: no there, yes requested", {"how": ExportHow(by_day=True)}),
    ]
    for mode in (Mode.APPEND, Mode.SINCE_LAST):
        for told, options in others:
            with pytest.raises(Refused, match=told):
                exported(root, out, mode, **options)
    assert names(out) == ["part-00000-0.parquet"]


@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.OVERWRITE, Mode.SINCE_LAST])
def test_what_is_no_export_is_left_alone(mode: Mode, tmp_path: Path) -> None:
    root, out = put(tmp_path / "store", "a"), tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").touch()
    with pytest.raises(Refused, match=r"thesis.tex in it is not a file of an export"):
        exported(root, out, mode)
    assert names(out) == ["thesis.tex"]
    with pytest.raises(Refused):
        exported(root, root, mode)


def test_files_that_tell_nothing(tmp_path: Path) -> None:
    """Of another program, or compacted by one."""
    root, out = put(tmp_path / "store", "a"), tmp_path / "out"
    exported(root, out)
    (file,) = out.iterdir()
    table = pq.read_table(file)
    pq.write_table(table.replace_schema_metadata(None), file)
    with pytest.raises(Refused, match="it does not say"):
        exported(root, out, Mode.SINCE_LAST)
    pq.write_table(table.replace_schema_metadata({"mqstore_export": "{}"}), file)
    with pytest.raises(Unreadable, match="does not say which export"):
        exported(root, out, Mode.APPEND)
    exported(root, out, Mode.OVERWRITE)
    assert bodies(out) == ["a"]


def test_overwrite(tmp_path: Path) -> None:
    root, out = put(tmp_path / "store", "a"), tmp_path / "real"
    (tmp_path / "out").symlink_to(out)
    exported(root, out, how=ExportHow(by_day=True))
    put(root, "b")
    exported(root, tmp_path / "out", Mode.OVERWRITE)
    assert bodies(out) == ["a", "b"] and names(out) == ["part-00000-0.parquet"]
    assert (tmp_path / "out").is_symlink()
    assert names(tmp_path) == ["out", "real", "store"]
    exported(root, tmp_path / "new", Mode.OVERWRITE)
    assert bodies(tmp_path / "new") == ["a", "b"]


def test_since_last_goes_on_behind_any_export(tmp_path: Path) -> None:
    root, out = put(tmp_path / "store", *"abc"), tmp_path / "out"
    exported(root, out)
    for more in ("de", "", "f", "ghijklmnopqrst"):
        put(root, *more)
        report = exported(root, out, Mode.SINCE_LAST)
        assert sum(file["rows"] for file in report["files"]) == len(more)
    assert bodies(out) == list("abcdefghijklmnopqrst")
    assert report["damage"] == [] and not (out / ".mqstore").exists()
    exported(root, out, Mode.OVERWRITE)
    put(root, "u")
    exported(root, out, Mode.SINCE_LAST)
    assert bodies(out) == list("abcdefghijklmnopqrstu")


def test_queues_that_cannot_be_read_are_not_needed(tmp_path: Path) -> None:
    root, out = put(tmp_path / "store", "a", "b"), tmp_path / "out"
    queues = (root / "consumequeue").rename(tmp_path / "queues")
    (root / "consumequeue").touch()
    exported(root, out)
    assert bodies(out) == ["a", "b"]
    (root / "consumequeue").unlink()
    queues.rename(root / "consumequeue")
    exported(put(root, "c"), out, Mode.SINCE_LAST)
    assert bodies(out) == ["a", "b", "c"]


def test_partial_leaves_out_a_store_whose_end_cannot_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    roots, out, found = [put(tmp_path / name, name) for name in ("a", "b")], tmp_path / "out", follow.end_of

    def end_of(layout: Layout) -> int:
        if layout.root == roots[0]:
            raise Unreadable("the disk fails", path=layout.root)
        return found(layout)

    monkeypatch.setattr(data_set, "end_of", end_of)
    assert run(["export", *map(str, roots), "--to", str(out), "--partial"]) == 1
    assert bodies(out) == ["b"] and f"the disk fails: {roots[0]}" in capsys.readouterr().err


def test_each_store_has_its_own_end(tmp_path: Path) -> None:
    one, two = put(tmp_path / "one", "a"), put(tmp_path / "two", "1", "2", "3")
    out = tmp_path / "out"
    exported(one, out, Mode.SINCE_LAST)
    exported([one, two], out, Mode.SINCE_LAST)
    put(one, "b")
    exported(two, out, Mode.SINCE_LAST)
    put(two, "4")
    exported([one, two], out, Mode.SINCE_LAST)
    assert bodies(out) == ["a", "b", "1", "2", "3", "4"]


def test_a_store_is_known_by_where_it_lies(tmp_path: Path) -> None:
    """Under a link it is the same one; one that was moved is told, and a link in its place will do."""
    root, link, out = put(tmp_path / "store", "a"), tmp_path / "link", tmp_path / "out"
    exported(root, out)
    link.symlink_to(root)
    assert exported(link, out, Mode.SINCE_LAST)["files"] == []
    exported(put(root, "b"), out, Mode.SINCE_LAST)
    moved = root.rename(tmp_path / "moved")
    with pytest.raises(Refused, match=f"exported from {root}, which no longer exists"):
        exported(put(moved, "c"), out, Mode.SINCE_LAST)
    exported(put(tmp_path / "other", "1"), out, Mode.SINCE_LAST)
    root.symlink_to(moved)
    exported(root, out, Mode.SINCE_LAST)
    assert sorted(bodies(out)) == ["1", "a", "b", "c"]


def test_other_messages_are_refused(tmp_path: Path) -> None:
    """Behind an export of one topic nobody knows of the others."""
    root, out = put(tmp_path / "store", "a"), tmp_path / "out"
    exported(root, out, topics="orders,x*")
    exported(put(root, "b"), out, Mode.SINCE_LAST, topics="x*,orders")
    with pytest.raises(Refused, match=r"of other messages: x\*, orders"):
        exported(root, out, Mode.SINCE_LAST)
    exported(root, out, Mode.OVERWRITE, until="-1h")
    with pytest.raises(Refused, match="it took messages --until a time"):
        exported(root, out, Mode.SINCE_LAST)


def test_another_log_is_refused(tmp_path: Path) -> None:
    root, out = put(tmp_path / "store", *"abcdef"), tmp_path / "out"
    exported(root, out)
    shutil.rmtree(root)
    put(root, "a")
    with pytest.raises(Refused, match=r"the log ends at .* but was exported up to"):
        exported(root, out, Mode.SINCE_LAST)
    put(root, *"BCDEFGH")
    with pytest.raises(Refused, match=r"the bytes before .* have changed"):
        exported(root, out, Mode.SINCE_LAST)
    assert bodies(out) == list("abcdef")


def test_a_log_that_recover_has_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The refusal names it, and first what keeps the export; what it names helps."""
    root, out = unpack("5.3.3-killed-torn", tmp_path), tmp_path / "out"
    words = ["export", str(root), "--to", str(out), "--columns", "topic,store_timestamp"]
    assert run([*words, "--since-last"]) == 0
    assert run(["recover", str(root), "--apply", "--yes"]) == 0
    capsys.readouterr()
    assert run([*words, "--since-last"]) == 5
    said = capsys.readouterr().err
    assert "mqstore (recover, repair, undo) changed the log" in said
    assert said.index("a new DIR") < said.index("--append --since TIME") < said.index("--overwrite")
    newest = pq.read_table(out).column("store_timestamp").to_pylist()[-1]
    assert run([*words, "--append", "--since", str(newest)]) == 0
    assert run([*words, "--since-last"]) == 0


@pytest.mark.parametrize("more", ["", "BCDEFGH"])
def test_behind_an_append_a_changed_log_goes_on(more: str, tmp_path: Path) -> None:
    """Even where it had nothing to add; of a log that is the same that writes no file."""
    root, out = put(tmp_path / "store", *"abcdef"), tmp_path / "out"
    exported(root, out)
    later = "2100-01-01"
    assert exported(root, out, Mode.APPEND, since=later)["files"] == []
    shutil.rmtree(root)
    put(root, "a", *more)
    (file,) = exported(root, out, Mode.APPEND, since=later)["files"]
    assert file["rows"] == 0
    exported(put(root, "new"), out, Mode.SINCE_LAST)
    assert sorted(bodies(out)) == [*"abcdef", "new"]


def test_what_was_looked_at_may_expire(tmp_path: Path) -> None:
    """Nothing of it was wanted: where the export ended is known all the same."""
    root, out = put(tmp_path / "store", "a"), tmp_path / "out"
    exported(root, out, Mode.SINCE_LAST, topics="orders")
    put(root, "b", topic="others")
    assert exported(root, out, Mode.SINCE_LAST, topics="orders")["files"] == []
    put(root, *(str(number) for number in range(60)), topic="others")
    (file,) = exported(root, out, Mode.SINCE_LAST, topics="orders")["files"]
    assert file["rows"] == 0 and bodies(out) == ["a"]
    min((root / "commitlog").iterdir()).unlink()
    put(root, "c")
    assert exported(root, out, Mode.SINCE_LAST, topics="orders")["damage"] == []
    assert bodies(out) == ["a", "c"]


def test_what_has_expired_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, out = put(tmp_path / "store", "a"), tmp_path / "out"
    words = ["export", str(root), "--to", str(out), "--json", *SIZES]
    assert run([*words, "--since-last"]) == 0
    put(root, *(str(number) for number in range(60)))
    first, *others = sorted((root / "commitlog").iterdir())
    assert others
    first.unlink()
    capsys.readouterr()
    assert run([*words, "--since-last"]) == 1
    out_text, err = capsys.readouterr()
    report = json.loads(out_text)
    (lost,) = report["damage"]
    (ends,) = report["ranges"]
    assert lost["reason"] == "files of the log have expired since the last export"
    assert lost["position"] + lost["size"] == int(others[0].name) == ends["begin"]
    assert "have expired since the last export" in err and report["status"] == "incomplete"
    assert run([*words, "--since-last"]) == 0
    assert len(bodies(out)) == 1 + report["rows"]


class NoExchange(KilledFiles):
    """On a file system whose names cannot change places."""

    def exchange(self, one: Path, other: Path) -> bool:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("files", [KilledFiles, NoExchange])
@pytest.mark.parametrize("mode", [Mode.OVERWRITE, Mode.SINCE_LAST])
def test_killed_at_every_step_and_run_again(mode: Mode, files: type[KilledFiles], tmp_path: Path) -> None:
    """Whenever it is killed and however often it is run, each message is there once."""
    root, old = prepared(tmp_path)
    options: dict[str, Any] = {"how": ExportHow(by_day=True)}
    shutil.copytree(old, tmp_path / "count")
    counted = files(1 << 30)
    exported(root, tmp_path / "count", mode, counted, **options)
    assert bodies(tmp_path / "count") == list("abcd")
    in_steps = 0
    for at in range(len(counted.steps)):
        target = tmp_path / str(at) / "set"
        shutil.copytree(old, target)
        with pytest.raises(Killed):
            exported(root, target, mode, files(at), **options)
        if target.exists():
            assert bodies(target) in (["a", "b"], list("abcd")), counted.steps[at]
            globbed = pl.read_parquet(f"{target}/**/*.parquet", columns=["position"]).height
            assert globbed in (2, 4), counted.steps[at]
        else:
            in_steps += 1
        exported(root, target, mode, **options)
        assert bodies(target) == list("abcd"), f"killed at {counted.steps[at]}"
        exported(root, target, Mode.SINCE_LAST, **options)
        assert bodies(target) == list("abcd"), f"again after {counted.steps[at]}"
        assert names(target.parent) == ["set"] and not (target / ".mqstore").exists()
    assert in_steps == (mode is Mode.OVERWRITE and files is NoExchange)


@pytest.mark.slow
def test_an_append_that_is_killed_is_finished_once(tmp_path: Path) -> None:
    """From the moment that it is decided until its answer, the same command finishes it."""
    root, old = prepared(tmp_path)
    options: dict[str, Any] = {"how": ExportHow(by_day=True)}
    shutil.copytree(old, tmp_path / "count")
    counted = CountingFiles()
    exported(root, tmp_path / "count", Mode.APPEND, counted, **options)
    ended = max(i for i, step in enumerate(counted.steps) if step == ("unlink", "manifest.json"))
    for at in range(ended):
        target = tmp_path / str(at) / "set"
        shutil.copytree(old, target)
        with pytest.raises(Killed):
            exported(root, target, Mode.APPEND, KilledFiles(at), **options)
        exported(root, target, Mode.APPEND, **options)
        assert sorted(bodies(target)) == list("aabbcd"), f"killed at {counted.steps[at]}"
        exported(root, target, Mode.SINCE_LAST, **options)
        assert sorted(bodies(target)) == list("aabbcd"), f"again after {counted.steps[at]}"


def test_an_append_of_other_times_or_stores_adds_nothing_after_it_has_finished_one(tmp_path: Path) -> None:
    """The same command may mean other times (`--since -1d`), or other stores, when it is run again."""
    root, old = prepared(tmp_path)
    counted = CountingFiles()
    shutil.copytree(old, tmp_path / "count")
    options: dict[str, Any] = {"how": ExportHow(by_day=True), "until": str(1 << 50)}
    exported(root, tmp_path / "count", Mode.APPEND, counted, since="1", **options)
    sealed = counted.steps.index(("rename", "manifest.draft"))
    again: list[tuple[list[Path], str]] = [([root], "2"), ([root, put(tmp_path / "two", "1")], "1")]
    for number, (roots, since) in enumerate(again):
        target = tmp_path / str(number) / "set"
        shutil.copytree(old, target)
        with pytest.raises(Killed):
            exported(root, target, Mode.APPEND, KilledFiles(sealed + 2), since="1", **options)
        with pytest.raises(Refused, match="is finished now"):
            exported(roots, target, Mode.APPEND, since=since, **options)
        assert sorted(bodies(target)) == list("aabbcd")
        exported(root, target, Mode.APPEND, since="2", **options)
        assert len(bodies(target)) == 10


@pytest.mark.parametrize(("manifest", "told"), [({"job": "other"}, None), ([], "not a manifest")])
def test_an_append_after_a_job_that_is_no_export(manifest: object, told: str | None, tmp_path: Path) -> None:
    root, old = prepared(tmp_path)
    (old / ".mqstore" / "rebuild-1").mkdir(parents=True)
    (old / ".mqstore" / "rebuild-1" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(Unreadable, match=told) if told else nullcontext():
        exported(root, old, Mode.APPEND, how=ExportHow(by_day=True))
        assert len(bodies(old)) == 6


def test_another_command_finishes_first(tmp_path: Path) -> None:
    root, old = prepared(tmp_path)
    options: dict[str, Any] = {"how": ExportHow(by_day=True)}
    counted = CountingFiles()
    shutil.copytree(old, tmp_path / "count")
    exported(root, tmp_path / "count", Mode.SINCE_LAST, counted, **options)
    sealed = counted.steps.index(("rename", "manifest.draft"))
    with pytest.raises(Killed):
        exported(root, old, Mode.SINCE_LAST, KilledFiles(sealed + 2), **options)
    exported([root, put(tmp_path / "two", "1")], old, Mode.SINCE_LAST, **options)
    assert bodies(old) == [*"abcd", "1"]


@pytest.mark.parametrize("existed", [False, True])
@pytest.mark.parametrize("mode", Mode)
def test_a_first_export_that_was_cut_off_is_finished_by_any_other(mode: Mode, existed: bool, tmp_path: Path) -> None:
    """A file says where all of it ended: none may be missing behind it."""
    root, rows = tmp_path / "store", tmp_path / "rows"
    lines = [{"topic": "T", "body": body, "store_timestamp": day * 86_400_000} for day, body in enumerate("abc", 1)]
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run(["put", str(root), "--from", str(rows), "--keep-times", "--no-answers", "-q", *SIZES]) == 0
    options: dict[str, Any] = {"how": ExportHow(by_day=True)}
    counted, out = CountingFiles(), tmp_path / "out"
    exported(root, tmp_path / "count", files=counted, **options)
    if existed:
        out.mkdir()
    with pytest.raises(Killed):
        exported(root, out, files=KilledFiles(_second_of_the_published(counted)), **options)
    assert out.exists() is existed and (not existed or 0 < len(bodies(out)) < 3)
    other = put(tmp_path / "other", "d")
    told = pytest.raises(Refused, match=r"is finished now.*; --append adds to an export")
    with told if mode is Mode.NEW else nullcontext():
        exported(other, out, mode, **options)
    assert sorted(bodies(out)) == {Mode.NEW: list("abc"), Mode.OVERWRITE: ["d"]}.get(mode, list("abcd"))
    exported([root, other], out, Mode.SINCE_LAST, **options)
    assert sorted(bodies(out)) == list("abcd")
    assert names(tmp_path) == ["count", "other", "out", "rows", "store"]


def _second_of_the_published(counted: CountingFiles) -> int:
    sealed = counted.steps.index(("rename", "manifest.draft"))
    renamed = [at for at, (change, name) in enumerate(counted.steps) if change == "rename" and name.startswith("part-")]
    return [at for at in renamed if at > sealed][1]


@pytest.mark.parametrize("mode", [Mode.OVERWRITE, Mode.SINCE_LAST])
def test_a_full_disk_changes_nothing(mode: Mode, tmp_path: Path) -> None:
    root, old = prepared(tmp_path)
    options: dict[str, Any] = {"how": ExportHow(by_day=True)}
    counted = CountingFiles()
    shutil.copytree(old, tmp_path / "count")
    exported(root, tmp_path / "count", mode, counted, **options)
    refused = 0
    for at in range(counted.steps.index(("rename", "manifest.draft"))):
        target = tmp_path / str(at) / "set"
        shutil.copytree(old, target)
        try:
            exported(root, target, mode, FailingFiles(at, errno.ENOSPC), **options)
        except NoSpace:
            refused += 1
            assert bodies(target) == ["a", "b"] and not (target / ".mqstore").exists()
            assert names(target.parent) == ["set"]
    assert refused > 5


@pytest.mark.parametrize("name", ["4.9.7-killed-page", "5.3.3-v2", "4.9.7-dledger", "5.3.3-lmq"])
def test_an_end_that_is_told_changes_no_message(name: str, tmp_path: Path) -> None:
    """Of a real store: the same rows as of one walk over its log, and then nothing more."""
    root, out = unpack(name, tmp_path), tmp_path / "out"
    how = ExportHow()
    export([str(root)], {}, how, out, HERE)
    assert pq.read_table(out).to_pylist() == rows(ReadOptions.of({"path": str(root)}))
    again = export([str(root)], {}, how, out, HERE, mode=Mode.SINCE_LAST)
    assert again["files"] == [] and DataSet.at(out).files == 1


@pytest.mark.slow
def test_a_program_that_is_killed_again_and_again(tmp_path: Path) -> None:
    """SIGKILL at any time, and messages that come meanwhile: in the end each is there once."""
    root, out = tmp_path / "store", tmp_path / "out"
    chances = random.Random(15)
    words = [sys.executable, "-m", "mqstore", "export", str(root), "--to", str(out), "-q"]
    words += ["--since-last", "--by-day", "--columns", "body,position,store"]
    count = 0
    for _ in range(20):
        lines = [{"topic": "T", "body": str(count + n)} for n in range(chances.randint(1, 2000))]
        count += len(lines)
        (tmp_path / "rows").write_text("".join(json.dumps(line) + "\n" for line in lines))
        put_all = ["put", str(root), "--from", str(tmp_path / "rows"), "--no-answers", "-q"]
        assert run([*put_all, "--set", "mappedFileSizeCommitLog=65536"]) == 0
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as killed:
            with suppress(subprocess.TimeoutExpired):
                assert killed.wait(chances.uniform(0.5, 2)) == 0
            killed.kill()
    for _ in range(2):
        assert subprocess.run(words, stdout=subprocess.DEVNULL, check=False).returncode == 0
        assert sorted(map(int, bodies(out))) == list(range(count))
    assert names(tmp_path) == ["out", "rows", "store"]
