"""The file layer: every change is a step, every refusal an error with its path."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.store.disk import files as file_layer
from mqstore.store.disk import lock
from mqstore.store.disk.file_queue import links_below
from mqstore.store.disk.files import Edit, Files, confined, reach, write_new
from mqstore.store.disk.layout import Layout
from mqstore.store.disk.lock import check_empty, new_directory
from mqstore.store.errors import InUse, InvalidInput, Missing, NoSpace, Refused, Unreadable
from mqstore.store.plan.normalize import check_reach

from ..put.faults import CountingFiles, FailingFiles, Killed, KilledFiles


def write_store(files: Files, root: Path) -> None:
    """One of everything."""
    files.make_directory(root / "a" / "b")
    with files.create(root / "a" / "b" / "one") as file:
        file.truncate(100)
        file.pwrite(b"hello", 10)
        file.sync()
    files.set_times(root / "a" / "b" / "one", 1, 2_000_000_000)
    files.rename(root / "a" / "b" / "one", root / "a" / "two")
    write_new(files, root / "three", b"x")
    files.unlink(root / "three")
    files.remove_directory(root / "a" / "b")
    files.sync_directory(root)


def test_what_is_removed_has_no_session_to_go_on_with(tmp_path: Path) -> None:
    """What is told of a new directory that goes away is that it does."""
    target = tmp_path / "new"
    with pytest.raises(KeyboardInterrupt) as ended, new_directory(target, Files()):
        stopped = KeyboardInterrupt()
        stopped.add_note("a session in it was cut off")
        raise stopped
    assert ended.value.__notes__ == [f"{target} was removed again"]


def test_who_makes_a_directory_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one that has looked at it before it was there leaves it, and the mark of who makes it, as they are."""
    target = tmp_path / "new"
    with new_directory(target, Files()):
        (target / "log").write_text("x")
        with pytest.raises(InUse) as named:
            check_empty(target)
        assert str(named.value) == f"in use: process {os.getpid()} is making it: {target}; name a new directory"
        with monkeypatch.context() as patched:
            patched.setattr(lock, "check_empty", lambda _: None)
            with pytest.raises(InUse, match=r"name a new directory$"), new_directory(target, Files()):
                raise AssertionError("made twice")
        assert sorted(path.name for path in target.rglob("*")) == [".mqstore", "half-made", "log"]
    assert [path.name for path in target.rglob("*")] == ["log"]


@pytest.mark.parametrize("theirs", ["notes.txt", ".mqstore/rebuild.lock", ".mqstore/half-made"])
def test_what_somebody_has_put_there_meanwhile_stays(theirs: str, tmp_path: Path) -> None:
    """Between the look at a directory and its mark: as if it had been there before."""

    class Slow(Files):
        def make_directory(self, path: Path, *, like: Path | None = None) -> None:
            (target / theirs).parent.mkdir(parents=True, exist_ok=True)
            (target / theirs).write_text("theirs")
            (target / "last.txt").touch()
            super().make_directory(path, like=like)

    target = tmp_path / "above" / "new"
    with pytest.raises(InvalidInput) as refused, new_directory(target, Slow()):
        raise AssertionError("made where something is")
    assert str(refused.value) == f"not empty: {target}; name a new directory"
    assert (target / theirs).read_text() == "theirs"
    assert {path.name for path in target.rglob("*") if path.is_file()} == {Path(theirs).name, "last.txt"}


def test_what_was_made_for_a_directory_that_is_not_marked_goes(tmp_path: Path) -> None:
    target = tmp_path / "above" / "new"
    whole = CountingFiles()
    with new_directory(target, whole):
        pass
    target.rmdir()
    target.parent.rmdir()
    for at, (change, _) in enumerate(whole.steps):
        if change != "write":  # what the mark says may be missing
            with pytest.raises(NoSpace), new_directory(target, FailingFiles(at, errno.ENOSPC)):
                pass
            assert list(tmp_path.iterdir()) == [], (at, change)


def test_changes_happen_and_are_named(tmp_path: Path) -> None:
    files = CountingFiles()
    write_store(files, tmp_path)
    assert [name for name, _ in files.steps] == [
        *("make_directory", "sync_directory", "make_directory", "sync_directory"),
        *("create", "truncate", "write", "sync", "set_times", "rename"),
        *("create", "write", "sync", "sync_directory", "unlink"),
        *("remove_directory", "sync_directory"),
    ]
    content = (tmp_path / "a" / "two").read_bytes()
    assert content == bytes(10) + b"hello" + bytes(85)
    assert (tmp_path / "a" / "two").stat().st_mtime_ns == 2_000_000_000
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", "two"]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
def test_each_step_can_fail_and_says_where(tmp_path: Path, error: int) -> None:
    counted = CountingFiles()
    write_store(counted, tmp_path / "whole")
    for number, (change, name) in enumerate(counted.steps):
        kind = NoSpace if error in (errno.ENOSPC, errno.EDQUOT) else Unreadable
        with pytest.raises(kind) as caught:
            write_store(FailingFiles(number, error), tmp_path / str(error) / str(number))
        said = str(caught.value)
        assert name in said or name == "whole", f"step {number} ({change}) said: {said}"
        assert "\n" not in said


def test_a_killed_process_does_nothing_more(tmp_path: Path) -> None:
    counted = CountingFiles()
    write_store(counted, tmp_path / "whole")
    for number in range(len(counted.steps)):
        root = tmp_path / str(number)
        with pytest.raises(Killed):
            write_store(KilledFiles(number), root)
        files = KilledFiles(0)
        with pytest.raises(Killed):
            files.unlink(root)


def test_a_write_error_names_the_offset(tmp_path: Path) -> None:
    files = FailingFiles(1, errno.ENOSPC)
    with files.create(tmp_path / "f") as file, pytest.raises(NoSpace) as caught:
        file.pwrite(b"x" * 10, 4096)
    assert caught.value.offset == 4096
    assert (tmp_path / "f").stat().st_size == 4096 + 5


def test_opening_does_not_create_and_creating_does_not_open(tmp_path: Path) -> None:
    files = Files()
    with pytest.raises(Missing):
        files.open(tmp_path / "none")
    files.create(tmp_path / "f").close()
    with pytest.raises(Unreadable, match="exists"):
        files.create(tmp_path / "f")


def test_new_files_are_like_their_neighbours(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.write_bytes(b"")
    model.chmod(0o640)
    tmp_path.chmod(0o2750)
    files = Files()
    files.create(tmp_path / "like", like=model).close()
    files.create(tmp_path / "default").close()
    files.make_directory(tmp_path / "d")
    assert (tmp_path / "like").stat().st_mode & 0o7777 == 0o640
    assert (tmp_path / "default").stat().st_mode & 0o7777 == 0o640
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o750


def test_short_writes_are_continued(tmp_path: Path) -> None:
    class Slow(Files):
        def write_at(self, descriptor: int, data: memoryview, offset: int) -> int:
            return super().write_at(descriptor, data[:7], offset)

    with Slow().create(tmp_path / "f") as file:
        file.pwrite(bytes(range(100)), 3)
        assert file.pread(200, 0) == bytes(3) + bytes(range(100))
        assert file.size == 103


def test_directories_are_flushed_by_who_goes_on(tmp_path: Path) -> None:
    """However far somebody came who was cut off: nobody knows whether that is on the disk."""
    wanted = [tmp_path / "a", tmp_path / "a" / "0", tmp_path / "a" / "1"]
    whole = CountingFiles()
    whole.make_directories(wanted)
    flushed = [step for step in whole.steps if step[0] == "sync_directory"]
    assert flushed == [("sync_directory", tmp_path.name), ("sync_directory", "a")]
    for at in range(len(whole.steps) + 1):
        for path in reversed(wanted):
            path.rmdir()
        if at < len(whole.steps):
            with pytest.raises(Killed):
                KilledFiles(at).make_directories(wanted)
        else:
            Files().make_directories(wanted)
        again = CountingFiles()
        again.make_directories(wanted)
        assert [step for step in again.steps if step[0] == "sync_directory"] == flushed
        assert all(path.is_dir() for path in wanted)


def test_a_link_that_the_user_allows_is_a_way_to_its_target_alone(tmp_path: Path) -> None:
    """No other path of the store leads there, and nothing beside the target can be changed."""
    (tmp_path / "disk" / "topic").mkdir(parents=True)
    (tmp_path / "store").mkdir()
    link, other = tmp_path / "store" / "topic", tmp_path / "store" / "other"
    for path in (link, other):
        path.symlink_to(tmp_path / "disk" / "topic")
    (tmp_path / "disk" / "topic" / "out").symlink_to(tmp_path / "disk")
    files = Files()
    files.confine([tmp_path / "store"], [link])
    allowed = {path: files.is_inside(path) for path in (link / "0" / "file", other / "file", link / "out" / "file")}
    assert list(allowed.values()) == [True, False, False]
    assert not files.is_inside(tmp_path / "disk" / "topic" / "file")


def test_directories_of_topics_are_looked_at_for_links_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not at all for changes inside the store: thousands of topics take long on a cold disk."""
    walked = list[str]()

    def watched(path: Path) -> Iterator[str]:
        walked.append(path.name)
        return links_below(path)

    monkeypatch.setattr(file_layer, "links_below", watched)
    (tmp_path / "other" / "0").mkdir(parents=True)
    root = tmp_path / "store"
    (root / "consumequeue").mkdir(parents=True)
    (root / "consumequeue" / "T").symlink_to(tmp_path / "other")
    (root / "config").symlink_to(tmp_path)
    layout, once = Layout.of(root), ["consumequeue", "batchconsumequeue", "consumequeue_ext"]
    check_reach(layout, [Edit("remove", f"{root}/index/1", ""), Edit("remove", f"{root}/checkpoint", "")])
    assert walked == []
    check_reach(layout, [Edit("remove", f"{root}/consumequeue/T/0/{name}", "") for name in "12"])
    assert walked == once
    for call in (reach, lambda layout: confined(layout, follow_links=True)):
        walked.clear()
        assert call(layout).is_inside(root / "consumequeue" / "T" / "0" / "1")
        assert walked == once
    (root / "index").mkdir()
    (root / "index" / "1").symlink_to("/etc/hostname")
    with pytest.raises(Refused, match="leads out of the store"):
        check_reach(layout, [Edit("remove", f"{root}/index/0", ""), Edit("remove", f"{root}/index/1", "")])


def test_a_new_directory_is_like_the_store_that_it_is_made_of(tmp_path: Path) -> None:
    """Whatever the umask is: the same broker must be able to use it. A directory that was there stays as it is."""
    model, new, old = tmp_path / "model", tmp_path / "new", tmp_path / "old"
    for folder, mode in ((model, 0o2770), (old, 0o755)):
        folder.mkdir()
        if folder is model and os.geteuid() == 0:
            os.chown(model, 12345, 12346)
        folder.chmod(mode)
    before, umask = old.stat(), os.umask(0o077)
    try:
        for target in (new, old):
            with new_directory(target, Files(), like=model):
                pass
    finally:
        os.umask(umask)
    made, kept = new.stat(), old.stat()
    assert (made.st_mode, made.st_uid, made.st_gid) == (model.stat().st_mode, model.stat().st_uid, model.stat().st_gid)
    assert (kept.st_mode, kept.st_uid) == (before.st_mode, before.st_uid)
