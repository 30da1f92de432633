"""Links out of a store, journals that name other places, FIFOs and sockets in place of files.

Commands that write change nothing outside the store; nothing waits for a FIFO.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import socket
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.session.journal import JOURNAL, SEALED, FileState, Step

from .. import stores
from .datadriven import run_here
from .hostile import check_output, content, mq, swapped
from .test_proposed import commands_in

pytestmark = pytest.mark.long

CLEAN = "5.3.3-clean"
KILLED = "5.3.3-killed"
PARTS = (
    *("commitlog", "consumequeue", "index", "config", "checkpoint", "lock", ".mqstore"),
    *("config/topics.json", "config/topics.json.bak"),
)


def store_in(tmp_path: Path, name: str) -> Path:
    """A real store; `tmp_path` holds nothing else that a command may change."""
    return stores.unpack(name, tmp_path).rename(tmp_path / "store")


def options(name: str, root: Path) -> list[str]:
    """The sizes of that store. Its log stands where the store itself says."""
    settings = stores.config_set(name, root)
    return [word for setting in settings if not setting.startswith("storePath") for word in ("--set", setting)]


def outside(tmp_path: Path) -> dict[str, Any]:
    """Everything beside the store."""
    return {name: each for name, each in content(tmp_path).items() if name.split("/")[0] != "store"}


def first_file(root: Path, part: str) -> str:
    """A file deep in a part of the store, by its name below the root."""
    files = sorted(path for path in (root / part).rglob("*") if path.is_file())
    return str(files[-1].relative_to(root))


@pytest.mark.few(2)
@pytest.mark.parametrize("part", PARTS)
def test_writing_commands_follow_no_link_out_of_the_store(part: str, tmp_path: Path) -> None:
    """Each part of a store is a link to the same thing elsewhere."""
    for name, commands in (
        (CLEAN, [["put", "TopicTest", "x"], ["put", "New", "x"]]),
        (KILLED, [["recover", "--apply", "--yes", "--broker-version", "5.3"]]),
    ):
        root = store_in(tmp_path, name)
        (tmp_path / "was-.mqstore").mkdir(exist_ok=True)
        was = tmp_path / f"was-{part.replace('/', '-')}"
        swapped(root, part, lambda path, was=was: path.symlink_to(was))  # type: ignore[misc]
        before, inside = outside(tmp_path), content(root)
        for command, *rest in commands:
            result = mq(command, root, *rest, *options(name, root), sizes=False)
            assert result.code == 5, result
            assert "leads out of the store" in result.stderr, result
        assert (outside(tmp_path), content(root)) == (before, inside)
        assert mq("inspect", root, *options(name, root), sizes=False).code == 0
        shutil.rmtree(root)
        shutil.rmtree(tmp_path / "was-.mqstore")
        if was.exists():
            shutil.rmtree(was) if was.is_dir() else was.unlink()


@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "index"])
def test_no_file_or_directory_below_is_a_way_out(part: str, tmp_path: Path) -> None:
    """The last file of a part is a link; so is the directory that holds it."""
    for depth in (0, 1):
        root = store_in(tmp_path, CLEAN)
        name = first_file(root, part)
        if depth:
            name = str(Path(name).parent)
        if name == part:
            shutil.rmtree(root)
            continue
        row = json.loads(mq("dump", root, "--format", "ndjson", "--count", "1", sizes=False).stdout)
        topic, queue = row["topic"], row["queue_id"]
        if part == "consumequeue":
            queues = sorted((root / part / topic).iterdir())
            queue, name = int(queues[0].name), first_file(root, f"{part}/{topic}/{queues[0].name}")
            name = str(Path(name).parent) if depth else name
        was = tmp_path / f"was-{name.replace('/', '-')}"
        swapped(root, name, lambda path, was=was: path.symlink_to(was))  # type: ignore[misc]
        before, inside = outside(tmp_path), content(root)
        command = ["put", root, topic, "x", "--queue", str(queue), "--keys", "k"]
        result = mq(*command, *options(CLEAN, root), sizes=False)
        assert (result.code, "leads out of the store" in result.stderr) == (5, True), result
        assert outside(tmp_path) == before
        assert {k: v for k, v in content(root).items() if k != "lock"} == {
            k: v for k, v in inside.items() if k != "lock"
        }
        shutil.rmtree(root)
        shutil.rmtree(was) if was.is_dir() else was.unlink()


def test_links_that_the_user_trusts(tmp_path: Path) -> None:
    """--follow-links: the store's own directories and those of topics may lie on other disks."""
    root = store_in(tmp_path, CLEAN)
    for part in ("commitlog", "consumequeue", "index", "config"):
        swapped(root, part, lambda path, part=part: path.symlink_to(tmp_path / f"was-{part}"))  # type: ignore[misc]
    put = ["put", root, "New", "x", *options(CLEAN, root)]
    refused = mq(*put, sizes=False)
    assert refused.code == 5 and "--follow-links allows" in refused.stderr, refused
    result = mq(*put, "--follow-links", sizes=False)
    assert result.code == 0, result
    assert (tmp_path / "was-consumequeue" / "New").is_dir()
    shutil.move(tmp_path / "was-consumequeue" / "New", tmp_path / "New")
    (tmp_path / "was-consumequeue" / "New").symlink_to(tmp_path / "New")
    assert mq(*put, sizes=False).code == 5
    assert mq(*put, "--follow-links", sizes=False).code == 0
    assert list((tmp_path / "New" / "0").iterdir())


@pytest.mark.parametrize("name", ["consumequeue/{topic}", "consumequeue/{topic}/0"])
def test_a_topic_or_queue_on_another_disk_is_recovered_and_taken_back(name: str, tmp_path: Path) -> None:
    """By the command that is proposed; without its option nothing is changed."""
    root = store_in(tmp_path, CLEAN)
    topic = next(path.name for path in sorted((root / "consumequeue").iterdir()) if (path / "0").is_dir())
    name = name.format(topic=topic)
    was = tmp_path / f"was-{name.replace('/', '-')}"
    swapped(root, name, lambda path: path.symlink_to(was))
    queue = min((root / "consumequeue" / topic / "0").iterdir())
    with queue.open("r+b") as file:
        file.write(bytes(40))
    before = outside(tmp_path)
    page = mq("recover", root, *options(CLEAN, root), sizes=False).stdout
    (wanted,) = {line for line in commands_in(page) if "--apply" in line}
    assert wanted.endswith(" --follow-links"), page
    words = shlex.split(wanted)[1:]
    refused = mq(*words[:-1], "--yes", sizes=False)
    assert (refused.code, "--follow-links allows" in refused.stderr) == (5, True), refused
    assert mq(*words, "--yes", sizes=False).code == 0
    assert outside(tmp_path) != before and mq("verify", root, sizes=False).code == 0
    undo = ["undo", root, "--yes", *options(CLEAN, root)]
    refused = mq(*undo, sizes=False)
    assert (refused.code, "--follow-links allows" in refused.stderr) == (5, True), refused
    assert mq(*undo, "--follow-links", sizes=False).code == 0
    assert outside(tmp_path) == before


@pytest.mark.parametrize(
    "part",
    [
        *("commitlog", "consumequeue/{topic}", "consumequeue/{topic}/0", "index", "config"),
        *("commitlog/{log_file}", "index/{index_file}"),
    ],
)
def test_a_link_to_a_disk_that_is_not_mounted_comes_before_any_plan(part: str, tmp_path: Path) -> None:
    """A queue that is made anew would hide the one that comes back with the disk."""
    root = store_in(tmp_path, KILLED)
    topic = next(path.name for path in sorted((root / "consumequeue").iterdir()) if (path / "0").is_dir())
    log_file, index_file = (max((root / name).iterdir()).name for name in ("commitlog", "index"))
    part = part.format(topic=topic, log_file=log_file, index_file=index_file)
    shutil.rmtree(root / part) if (root / part).is_dir() else (root / part).unlink()
    (root / part).symlink_to("/nonexistent/disk")
    before = content(root)
    for command in (["verify"], ["recover"], ["repair"], ["recover", "--apply", "--yes", "--follow-links"]):
        told = mq(command[0], root, *command[1:], *options(KILLED, root), sizes=False)
        assert told.code in (1, 5) and "a link to /nonexistent/disk, where nothing is" in told.stdout + told.stderr, (
            told
        )
        assert f"{root / part}; mount its disk" in told.stdout + told.stderr
        assert "it is empty" not in told.stdout and "not a file" not in told.stdout
    assert content(root) == before


@pytest.mark.parametrize("part", ["consumequeue/New", "consumequeue/New/0", "index", "config"])
def test_put_names_a_link_to_nothing_and_what_helps(part: str, tmp_path: Path) -> None:
    """--follow-links does not; with it nothing is written either."""
    root = store_in(tmp_path, CLEAN)
    if (root / part).is_dir():
        shutil.rmtree(root / part)
    (root / part).parent.mkdir(exist_ok=True)
    (root / part).symlink_to("/nonexistent/disk")
    before = content(root)
    for more in ([], ["--follow-links"]):
        told = mq("put", root, "New", "x", "--keys", "k", *more, *options(CLEAN, root), sizes=False)
        place = f"{root / part}; mount its disk, or remove the link if the disk is gone"
        assert (told.code, told.stderr) == (5, f"mqstore: a link to /nonexistent/disk, where nothing is: {place}\n")
    assert {k: v for k, v in content(root).items() if k != "lock"} == {k: v for k, v in before.items() if k != "lock"}


def test_a_log_file_that_is_a_link_is_refused_before_anything_is_kept(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-killed-bit", tmp_path)
    damaged = max((root / "commitlog").iterdir())
    swapped(root, f"commitlog/{damaged.name}", lambda path: path.symlink_to(tmp_path / f"was-commitlog-{damaged.name}"))
    for more in ([], ["--follow-links"]):
        planned = run_here(["recover", str(root), *more])
        assert "replace the link with the file itself" in planned.stdout and "--apply" not in planned.stdout
        result = run_here(["recover", str(root), "--apply", "--yes", *more])
        assert result.code == 5 and "replace the link with the file itself" in result.stderr
    assert not (root / ".mqstore").exists()


def test_what_is_proposed_follows_links(tmp_path: Path) -> None:
    """A store that lies on several disks: each command that would change it can be pasted as it stands."""
    root = store_in(tmp_path, KILLED)
    for part in ("commitlog", "config"):
        swapped(root, part, lambda path, part=part: path.symlink_to(tmp_path / f"was-{part}"))  # type: ignore[misc]
    for command in ("inspect", "verify", "repair", "recover"):
        page = mq(command, root, sizes=False).stdout
        (wanted,) = {line for line in commands_in(page) if "--apply" in line}
        assert wanted.endswith(" --apply --follow-links"), (command, page)
    told = json.loads(mq("recover", root, "--format", "json", sizes=False).stdout)["next"]
    assert told == [wanted]
    applied = mq(*shlex.split(wanted)[1:], "--yes", sizes=False)
    assert applied.code == 0, applied


def test_a_link_loop_and_a_link_to_the_root_end(tmp_path: Path) -> None:
    """A walk over the store does not leave it."""
    root = store_in(tmp_path, KILLED)
    (root / "everything").symlink_to("/")
    (root / "config" / "loop").symlink_to("..")
    applied = mq("recover", root, "--apply", "--yes", *options(KILLED, root), sizes=False)
    assert applied.code in (0, 1), applied
    assert mq("undo", root, "--yes", *options(KILLED, root), sizes=False).code == 0
    assert mq("inspect", root, *options(KILLED, root), sizes=False).code == 0


def test_inspect_tells_of_links(tmp_path: Path) -> None:
    """Where they lead is text of the store, too."""
    root = store_in(tmp_path, CLEAN)
    (root / "x").symlink_to("/no\x1b[2J where\u202e")
    for format in ("text", "json"):
        result = mq("inspect", root, "--format", format, sizes=False)
        assert result.code == 0
        check_output(result.stdout, format)
        assert "x is a link to /no" in result.stdout


# -- journals ----------------------------------------------------------------------------------------


def plant(root: Path, session: str, marks: tuple[str, ...], **fields: Any) -> Path:
    """A session that somebody wrote by hand, its checksum right."""
    folder = root / ".mqstore" / session
    folder.mkdir(parents=True)
    old = hashlib.sha256(b"planted").hexdigest()
    defaults: dict[str, Any] = {
        "number": 0,
        "kind": "write",
        "path": "checkpoint",
        "folder": f".mqstore/{session}",
        "reason": "",
        "length": 7,
        "old_sha256": old,
        "new_sha256": old,
        "before": FileState(0o644, 0, 0, 0, 0, 7),
    }
    step = asdict(Step(**(defaults | fields)))
    for name in ("000000.old", "000000.new", "000000.moved"):
        (folder / name).write_bytes(b"planted")
    journal = {"format": 1, "command": "recover", "directories": [], "steps": [step]}
    text = json.dumps(journal).encode()
    (folder / JOURNAL).write_bytes(text)
    (folder / SEALED).write_text(hashlib.sha256(text).hexdigest())
    for mark in marks:
        (folder / mark).write_text("{}")
    return folder


_KINDS, _WAYS = ("write", "truncate", "create", "move"), ("absolute", "dots", "link")
_FAST_WAYS = {*zip(_KINDS, _WAYS, strict=False), ("move", "absolute"), ("write", "link")}


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("kind", "way"),
    [
        pytest.param(kind, way, marks=() if (kind, way) in _FAST_WAYS else pytest.mark.slow)
        for kind in _KINDS
        for way in _WAYS
    ],
)
def test_a_planted_journal_changes_nothing_outside(kind: str, way: str, tmp_path: Path) -> None:
    """undo and a recovery that goes on take their places from the journal."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    for session_marks, commands in (
        (("done",), [["undo", "--force"]]),
        ((), [["recover", "--apply"], ["undo", "--force"]]),
        (("undoing",), [["undo", "--force"]]),
    ):
        root = store_in(tmp_path, KILLED)
        (root / "link").symlink_to(tmp_path)
        path = {"absolute": str(victim), "dots": "../victim", "link": "link/victim"}[way]
        plant(root, "20260101T000000.000000Z", session_marks, path=path, kind=kind)
        (root / "commitlog" / "mqstore-recover-1").write_bytes(b"")
        before = outside(tmp_path)
        for command, *rest in commands:
            result = mq(command, root, "--yes", *rest, *options(KILLED, root), sizes=False)
            assert result.code == 5, result
        assert outside(tmp_path) == before
        shutil.rmtree(root)


@pytest.mark.parametrize(
    "fields",
    [
        {"folder": "commitlog"},
        {"folder": "../../elsewhere"},
        {"offset": -1},
        {"offset": 1 << 70},
        {"length": "7"},
        {"path": "nul\0"},
        {"path": None},
        {"kind": "execute"},
        {"before": FileState("x", 0, 0, 0, 0, 0)},  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_a_journal_that_is_none(fields: dict[str, Any], tmp_path: Path) -> None:
    """It is listed for what it is, not undone, and purged with nothing else."""
    root = store_in(tmp_path, CLEAN)
    session = "20260101T000000.000000Z"
    plant(root, session, ("done",), **fields)
    before = content(tmp_path)
    listed = mq("undo", root, "--list", *options(CLEAN, root), sizes=False)
    assert (listed.code, "unknown, damaged" in listed.stdout) == (0, True), listed
    result = mq("undo", root, "--yes", "--force", *options(CLEAN, root), sizes=False)
    assert (result.code, "not a journal" in result.stderr) == (5, True), result
    assert content(tmp_path) == before
    result = mq("undo", root, session, "--purge", "--yes", *options(CLEAN, root), sizes=False)
    assert result.code == 0, result
    kept = {n: d for n, d in before.items() if session not in n}
    assert kept.pop("store/.mqstore")  # the folder of sessions goes with the last of them
    assert kept == content(tmp_path)


# -- no files ----------------------------------------------------------------------------------------


def _socket(path: Path) -> None:
    """A socket; its name must be short, so it is made elsewhere."""
    with socket.socket(socket.AF_UNIX) as server:
        descriptor = os.open(path.parent, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{descriptor}/{path.name}")
        os.close(descriptor)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


NO_FILES: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "socket": _socket,
    "device": _device,
    "directory": Path.mkdir,
    "loop": lambda path: path.symlink_to(path),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("what", NO_FILES)
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])
def test_what_is_no_file_stops_no_command(what: str, every: int, tmp_path: Path) -> None:
    """In the place of every file of the store, one after the other; of others in a fast run."""
    root = store_in(tmp_path, "5.3.3-timer-clean")
    names = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    chosen = {name.split("/")[0] + Path(name).suffix: name for name in names}
    chosen |= {name: name for name in ("abort", "lock", "config/topics.json", "config/new.json")}
    settings = options("5.3.3-timer-clean", root)
    for name in sorted(chosen.values())[list(NO_FILES).index(what) % every :: every]:
        swapped(root, name, NO_FILES[what])
        for command in (
            ["inspect", root],
            ["dump", root, "--count", "2"],
            ["dump", root / name],
            ["inspect", root / name],
            ["inspect", root / name.split("/")[0]],
            ["get", root, "--topic", "T*", "--limit", "1"],
            ["get", root, "--key", "no such"],
            ["recover", root, "--broker-version", "5.3"],
            ["put", root, "New", "x"],
        ):
            result = mq(*command, *settings, sizes=False)
            assert result.code in (0, 1, 3, 5), (name, command, result)
        path = root / name
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        shutil.rmtree(root)
        shutil.rmtree(tmp_path / "again", ignore_errors=True)
        root = store_in(tmp_path, "5.3.3-timer-clean")
