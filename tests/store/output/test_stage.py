"""Stage, manifest, rename: at every step a job may be killed, and the next run takes over."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from mqstore.store.disk.files import Files, remove_tree, write_new
from mqstore.store.disk.layout import Layout
from mqstore.store.disk.lock import mark_of, new_directory
from mqstore.store.errors import InUse, InvalidInput, Missing, Refused, Unreadable
from mqstore.store.inspect.recognise import recognise
from mqstore.store.output.stage import Stage, one_job, publish_job, publish_made

from ..put.faults import CountingFiles, Killed, KilledFiles

WANTED = {"consumequeue/T/0": b"first", "consumequeue/T/100": b"second", "b/x": b""}


def job(target: Path, files: Files) -> None:
    """A job as `rebuild` runs one: take over what a killed one left, or do it all."""
    for left in Stage.left_in(target, files):
        if left.sealed:
            left.publish()
        left.remove()
    if visible(target):
        return
    stage = Stage.begin(target, files)
    for identity in ("lost", "won"):
        for path, content in WANTED.items():
            file = stage.attempt(identity) / path
            files.make_directory(file.parent)
            write_new(files, file, content if identity == "won" else b"half")
    stage.collect([("won", path) for path in WANTED])
    stage.seal({"files": sorted(WANTED)})
    stage.publish()
    stage.remove()


def visible(target: Path) -> dict[str, bytes]:
    """What a user of the target sees."""
    paths = [path for path in target.rglob("*") if path.is_file()]
    names = {path.relative_to(target) for path in paths}
    return {str(n): (target / n).read_bytes() for n in names if n.parts[0] != ".mqstore"}


def test_only_the_winners_are_published(tmp_path: Path) -> None:
    job(tmp_path, Files())
    assert visible(tmp_path) == WANTED
    assert not Stage.left_in(tmp_path, Files())


def test_killed_at_every_step_and_run_again(tmp_path: Path) -> None:
    counted = CountingFiles()
    (tmp_path / "count").mkdir()
    job(tmp_path / "count", counted)
    manifest = counted.steps.index(("rename", "manifest.draft"))
    for at in range(len(counted.steps)):
        target = tmp_path / str(at)
        target.mkdir()
        with pytest.raises(Killed):
            job(target, KilledFiles(at))
        if at <= manifest:
            assert not visible(target), f"something was visible after step {at}"
        job(target, Files())
        assert visible(target) == WANTED, f"killed at step {at}: {counted.steps[at]}"


def test_a_directory_that_another_command_makes_is_not_taken(tmp_path: Path) -> None:
    """Nor one where that was cut off: what a job makes there would be told to be half of something, for good."""
    target, left = tmp_path / "new", tmp_path / "left"
    mark_of(left).parent.mkdir(parents=True)
    mark_of(left).touch()
    with new_directory(target, Files()), pytest.raises(InUse, match=f"process {os.getpid()} is making it"):
        publish_made(target, {}, lambda _: {})
    with pytest.raises(Refused, match=r"the command that was making it was interrupted: .*; remove it; --to takes"):
        publish_made(left, {}, lambda _: {})
    assert [path.name for path in left.rglob("*")] == [".mqstore", "half-made"]


LINKS = [
    *(f".tgt.mqstore-{name}" for name in ("unfinished", "new", "old")),
    ".tgt.mqstore-unfinished/.mqstore",
    *(f"tgt/.mqstore{name}" for name in ("", "/rebuild-x", "/rebuild-x/tree", "/rows-x", "/rebuild.lock")),
]


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("link", LINKS)
def test_a_link_in_the_place_of_what_a_job_keeps_is_not_followed(link: str, there: bool, tmp_path: Path) -> None:
    """Anybody may have laid it in a directory that all can write to: nothing is changed, before it and behind it."""
    for path in ("vic/rebuild-keep/a", "vic/tree/b", "vic/manifest.json"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("{}")
    target = tmp_path / "tgt"
    if there:
        target.mkdir(parents=True)
    (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
    if link.endswith("/tree"):
        ((tmp_path / link).parent / "manifest.json").write_text("{}")
    (tmp_path / link).symlink_to(tmp_path / ("vic/tree/b" if link.endswith("lock") else "vic"))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(Refused, match="a link in place of mqstore's own directory"):
        publish_made(target, {}, lambda tree: {})
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "vic" / "tree" / "b").read_text() == "{}"


def test_a_tree_is_removed_without_what_its_links_name(tmp_path: Path) -> None:
    (tmp_path / "vic").mkdir()
    (tmp_path / "vic" / "a").touch()
    (tmp_path / "tree" / "in").mkdir(parents=True)
    for link in ("tree/in/link", "link"):
        (tmp_path / link).symlink_to(tmp_path / "vic")
    with pytest.raises(Refused):
        remove_tree(tmp_path / "link", Files())
    remove_tree(tmp_path / "tree", Files())
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "link", "vic"]


def test_a_broken_manifest_is_named(tmp_path: Path) -> None:
    stage = Stage.begin(tmp_path, Files())
    stage.seal({})
    (stage.folder / "manifest.json").write_bytes(b"{")
    with pytest.raises(Unreadable, match="not a manifest"):
        stage.manifest()


@pytest.mark.parametrize("begun", [False, True])
def test_another_job_ends_or_begins_while_one_ends(begun: bool, tmp_path: Path) -> None:
    """What looked empty is gone, or is empty no more: the job has succeeded all the same."""

    class Meanwhile(Files):
        def remove_directory(self, path: Path) -> None:
            if begun:
                (path / "other").touch()
            else:
                path.rmdir()
            super().remove_directory(path)

    with one_job(tmp_path, Meanwhile()):
        pass
    assert (tmp_path / ".mqstore").exists() is begun


@pytest.mark.parametrize("read", [Layout.open, recognise])
def test_what_a_killed_job_left_is_named_where_its_output_is_looked_for(
    read: Callable[[Path], object], tmp_path: Path
) -> None:
    """Nor does another command make something in that place; the same job goes on there."""
    target, left = tmp_path / "new", tmp_path / ".new.mqstore-unfinished"
    with pytest.raises(Missing) as missing:
        read(target)
    assert left.name not in str(missing.value)
    fill = partial(Stage.seal, manifest={})
    with pytest.raises(Killed):
        publish_job(target, fill, bool, KilledFiles(4))
    assert left.is_dir() and not target.exists()
    told = f"run the job again that was making it, or remove {left}"
    with pytest.raises(Missing, match=told):
        read(target)
    refused = pytest.raises(InvalidInput, match=f"a job has begun to make this directory: {target}; {told}")
    with refused, new_directory(target, Files()):
        pass
    publish_job(target, fill, bool)
    assert target.is_dir() and not left.exists()


def test_a_name_that_leaves_no_room_for_a_longer_one_beside_it(tmp_path: Path) -> None:
    """In UTF-8 it has 235 bytes at most."""
    publish_made(tmp_path / ("d" * 235), {}, lambda tree: {})
    for name in ("d" * 236, "\u00e4" * 118):
        with pytest.raises(InvalidInput, match=r"the name of the target is too long: .* of 235 bytes or less"):
            publish_made(tmp_path / name, {}, lambda tree: {})
    assert [path.name for path in tmp_path.iterdir()] == ["d" * 235]
