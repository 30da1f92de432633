"""`mqstore undo`: what it asks, says and answers."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import shutil
import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.record_types import schema_of
from mqstore.cli.terminal import time_text

from .damaged_case import of_case
from .datadriven import run_here
from .json_schema import errors


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A store that `recover --apply` has changed, and its options."""
    root, options = of_case("body_crc_middle", tmp_path_factory.mktemp("applied"))
    result = run_here(["recover", str(root), *options, "--apply", "--yes", "--quiet"])
    assert result.code == 1, result.stderr
    return root, options[:-2]  # undo does not ask for the broker's version


@pytest.fixture
def recovered(applied: tuple[Path, list[str]], tmp_path: Path) -> tuple[Path, list[str]]:
    """A copy of it, times and all."""
    root, options = applied
    copy = tmp_path / root.name
    subprocess.run(["cp", "-a", root, copy], check=True)
    return copy, options


def answers(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
    """The records of `undo`, checked against their schemas."""
    result = run_here(["undo", *arguments, "--format", "ndjson"])
    assert result.code == code, result.stderr + result.stdout
    records = [json.loads(line) for line in result.stdout.splitlines()]
    for record in records:
        assert list(errors(schema_of(record["type"]), record)) == []
    return records


def test_list_undo_list(recovered: tuple[Path, list[str]]) -> None:
    root, options = recovered
    (before,) = answers(str(root), "--list", *options)
    assert before["state"] == "applied" and before["kept_bytes"] > 0
    (done,) = answers(str(root), "--yes", *options)
    assert done == {
        "type": "undone",
        "session": before["session"],
        "command": "recover",
        "changes": before["changes"],
        "files": before["files"],
        "resumed": False,
        "forced": False,
        "new_times": [],
    }
    (after,) = answers(str(root), "--list", *options)
    assert after["state"] == "undone"
    assert answers(str(root), "--yes", *options, code=1) == []


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("way", [".", "../{folder}"])
def test_a_log_named_by_an_absolute_path(
    way: str, given: bool, recovered: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As broker.conf has it, where the store is named by another one."""
    root, options = recovered
    answers(str(root), "--yes", *options)
    monkeypatch.chdir(root.parent)
    of_log = f"--set=storePathCommitLog={root}/commitlog"
    name = f"{way.format(folder=root.parent.name)}/{root.name}"
    assert run_here(["recover", name, *options, of_log, "--apply", "--yes", "--quiet"]).code == 1
    assert run_here(["undo", name, *options, *([of_log] if given else []), "--yes"]).code == 0


def test_a_log_elsewhere_is_to_be_named(recovered: tuple[Path, list[str]]) -> None:
    """It is no link, and nothing leads out of the store."""
    root, options = recovered
    answers(str(root), "--yes", *options)
    log = (root / "commitlog").rename(root.parent / "log")
    of_log = f"--set=storePathCommitLog={log}"
    assert run_here(["recover", str(root), *options, of_log, "--apply", "--yes", "--quiet"]).code == 1
    for more in ([], ["--follow-links"]):
        refused = run_here(["undo", str(root), *options, "--yes", *more])
        assert refused.code == 5
        assert f"changed files in a directory that is no part of this store: {log}; name it" in refused.stderr
    away = log.rename(root.parent / "away")
    assert "it is not there: mount its disk there again" in run_here(["undo", str(root), *options, "--yes"]).stderr
    away.rename(log)
    answers(str(root), "--yes", *options, of_log)


def test_a_list_of_files_that_is_cut_off(recovered: tuple[Path, list[str]]) -> None:
    """The originals are elsewhere: the error says how to use them."""
    root, options = recovered
    (done,) = (root / ".mqstore").glob("*/done")
    done.write_bytes(done.read_bytes()[:-5])
    refused = run_here(["undo", str(root), *options, "--yes"])
    assert refused.code == 5
    assert "the originals are not in this file: move it away, then undo with --force" in refused.stderr
    done.rename(root.parent / "done")
    answers(str(root), "--yes", "--force", *options)


def test_a_csv_has_times(recovered: tuple[Path, list[str]]) -> None:
    root, options = recovered
    (known,) = answers(str(root), "--list", *options)
    listed = run_here(["undo", str(root), "--list", "--format", "csv", "--utc", *options])
    (row,) = csv.DictReader(io.StringIO(listed.stdout))
    assert row["began"] == time_text(known["began"], utc=True)
    delays = run_here(["inspect", str(root), "--delays", "--now", "0", "--format", "csv", "--utc", *options])
    assert delays.stdout.splitlines()[1].startswith("delays,1970-01-01T00:00:00.000Z,")


def test_text(recovered: tuple[Path, list[str]]) -> None:
    root, options = recovered
    listed = run_here(["undo", str(root), "--list", "--utc", *options])
    assert "recover, applied: " in listed.stdout and " kept" in listed.stdout
    done = run_here(["undo", str(root), "-y", *options])
    assert done.stdout.startswith("Taken back: recover ") and done.code == 0
    session = listed.stdout.split()[0]
    purged = run_here(["undo", str(root), session, "--purge", "--yes", *options])
    assert purged.stdout.startswith(f"Deleted: what {session} kept, ")
    assert not (root / ".mqstore" / session).exists()
    gone = run_here(["undo", str(root), "--list", *options])
    assert gone.stdout == "" and "no sessions" in gone.stderr and gone.code == 0


def test_the_list_is_one_array(recovered: tuple[Path, list[str]]) -> None:
    """Of none, of one and of several sessions, as every list that is JSON."""
    root, options = recovered
    list_them = ["undo", str(root), "--list", "--format", "json", *options]
    (first,) = json.loads(run_here(list_them).stdout)
    run_here(["undo", str(root), "--yes", *options])
    run_here(["recover", str(root), *options, "--apply", "--yes", "--quiet"])
    rows = json.loads(run_here(list_them).stdout)
    assert [row["state"] for row in rows] == ["undone", "applied"]
    assert rows[0]["session"] == first["session"]
    for row in rows:
        run_here(["undo", str(root), row["session"], "--purge", "--yes", *options])
    assert json.loads(run_here(list_them).stdout) == []


def test_nothing_without_yes(recovered: tuple[Path, list[str]]) -> None:
    root, options = recovered
    for arguments in ([], ["--purge"], ["--purge", "--yes"]):
        result = run_here(["undo", str(root), *arguments, *options])
        assert result.code == 2 and result.stderr.count("\n") == 1
    (session,) = answers(str(root), "--list", *options)
    assert session["state"] == "applied"


def test_a_store_that_changed(recovered: tuple[Path, list[str]]) -> None:
    root, options = recovered
    put = run_here(["put", str(root), "T", "later", *options])
    assert put.code == 0, put.stderr
    result = run_here(["undo", str(root), "--yes", *options])
    assert result.code == 5 and result.stderr.count("\n") == 1
    assert "changed since" in result.stderr and "--force" in result.stderr
    (done,) = answers(str(root), "--yes", "--force", *options)
    assert done["changes"]


def test_what_was_written_to_a_file_since_then_stays_and_is_told(recovered: tuple[Path, list[str]]) -> None:
    """Only the replaced bytes come back: the file is not as before, so neither is its time."""
    root, options = recovered
    before = answers(str(root), "--list", *options)
    journal = json.loads((root / ".mqstore" / before[0]["session"] / "journal.json").read_bytes())
    step = next(step for step in journal["steps"] if step["kind"] == "write" and step["path"].startswith("commitlog"))
    log = root / step["path"]
    with log.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"later")
    later = log.stat().st_mtime_ns
    done = run_here(["undo", str(root), "--yes", "--force", *options])
    assert done.code == 0 and "as they were" not in done.stdout
    assert "the bytes that these changes replaced are back; other bytes were not checked.\n" in done.stdout
    assert f"1 file has a new modification time: {step['path']}." in done.stdout
    assert log.stat().st_mtime_ns >= later > step["before"]["modified_ns"]


def test_a_copy_that_has_lost_the_times(recovered: tuple[Path, list[str]], tmp_path: Path) -> None:
    """Of a tar or of `cp -r`: kept files get the time that the journal knows, and the store is not half changed."""
    root, options = recovered
    answers(str(root), "--yes", *options)
    index = next((root / "index").iterdir())
    index.write_bytes(index.read_bytes()[:100] + bytes(400) + index.read_bytes()[500:])
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and ".mqstore" not in path.parts}
    time_ns = index.stat().st_mtime_ns
    run_here(["recover", str(root), *options, "--apply", "--yes", "--quiet"])
    copy = tmp_path / "plain" / root.name
    shutil.copytree(root, copy, copy_function=shutil.copyfile)
    refused = run_here(["undo", str(copy), "--yes", *options])
    assert refused.code == 5 and "changed since" in refused.stderr
    (done,) = answers(str(copy), "--yes", "--force", *options)
    assert all((copy / path.relative_to(root)).read_bytes() == data for path, data in before.items())
    assert (copy / "index" / index.name).stat().st_mtime_ns == time_ns
    assert done["forced"] and not list(copy.glob("commitlog/mqstore-recover-*"))


def test_a_time_that_cannot_be_set(recovered: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of another user, or a file system with coarse times: the undo ends, and says so."""
    root, options = recovered
    real = os.utime

    def coarse(path: Path, ns: tuple[int, int]) -> None:
        if "consumequeue" in Path(path).parts:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        real(path, ns=(ns[0] // 1000 * 1000, ns[1] // 1000 * 1000))

    monkeypatch.setattr(os, "utime", coarse)
    done = run_here(["undo", str(root), "--yes", *options])
    assert done.code == 0 and "every byte and name is as it was before." in done.stdout
    assert "a new modification time: " in done.stdout


def test_sessions_that_are_none(recovered: tuple[Path, list[str]]) -> None:
    root, options = recovered
    for name, more in product(("../../x", "gone", "", "a\x1b[31m"), ([], ["--purge"])):
        result = run_here(["undo", str(root), name, "--yes", *more, *options])
        assert result.code in (1, 2) and result.stderr.count("\n") == 1
        assert "\x1b" not in result.stderr


def test_no_store(tmp_path: Path) -> None:
    result = run_here(["undo", str(tmp_path / "none"), "--yes"])
    assert result.code == 5 and result.stderr.count("\n") == 1


def test_a_list_is_of_all_sessions(recovered: tuple[Path, list[str]]) -> None:
    root, options = recovered
    result = run_here(["undo", str(root), "some-session", "--list", *options])
    assert (result.code, result.stdout) == (2, "") and "takes no SESSION" in result.stderr


def test_options_that_exclude_each_other(recovered: tuple[Path, list[str]]) -> None:
    root, options = recovered
    for first, second in (("--list", "--purge"), ("--list", "--force"), ("--purge", "--force")):
        result = run_here(["undo", str(root), *(["s"] if first == "--purge" else []), first, second, "--yes", *options])
        assert (result.code, result.stdout) == (2, ""), result
        assert f"{first} and {second} cannot be combined" in result.stderr
