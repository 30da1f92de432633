"""The options that every command shares."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import pytest

from mqstore.cli import options
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.byte_reader import Unread, note
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import Missing, NotFound, UnreadableRange

from .. import stores
from ..store.session.test_undo import everything
from .datadriven import run_here


@pytest.mark.parametrize(("text", "size"), [("4096", 4096), ("64K", 65536), ("10MB", 10 << 20), ("1gib/s", 1 << 30)])
def test_sizes_with_units(text: str, size: int) -> None:
    """Powers of 1024, whatever the unit is called."""
    assert options.parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "0", "0K", "-1", "1.5M", "1 X", "K", "10PB", "0x10"])
def test_what_is_no_number_of_bytes(text: str) -> None:
    with pytest.raises(Exception, match="is not a number of bytes"):
        options.parse_bytes(text)


@pytest.mark.parametrize(
    "command",
    [
        ["stats"],
        ["stats", "--quick"],
        ["sql", "SELECT count(*) FROM messages"],
        ["sql", "SELECT count(*) FROM findings"],
        ["sql", "SELECT count(*) FROM index_items"],
    ],
    ids=" ".join,
)
def test_the_rate_limits_counts_and_queries(command: list[str], tmp_path: Path, waited: list[float]) -> None:
    """They wait as long as their bytes take; the answer is the same."""
    root = stores.unpack("4.9.7-clean", tmp_path)
    plain = run_here([*command, str(root)])
    assert plain.code == 0 and not waited
    assert run_here([*command, str(root), "--rate", "1K"]) == plain
    part = {"--quick": "consumequeue", "SELECT count(*) FROM index_items": "index"}.get(command[-1], "commitlog")
    files = [path for path in (root / part).rglob("*") if path.is_file()]
    held = sum(len(path.read_bytes().rstrip(b"\0")) for path in files)
    assert sum(waited) > 0.9 * held / 1024


def unread(number: int) -> Unread:
    return Unread("/s/commitlog/0", 4096 * number, 512, "Input/output error")


def met(ranges: int, unread_is: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What a command says that goes around so many ranges; the last line is its error."""
    with pytest.raises(UnreadableRange) as ended, options.reporting_unreadable(unread_is, options.Common(), None):
        for number in range(ranges):
            note(unread(number))
    return [*capsys.readouterr().err.splitlines(), str(ended.value)]


def test_ranges_that_a_disk_does_not_give_are_told_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    """The first is the error; of many twenty have a line."""
    (error,) = met(1, options.PASSED_OVER, capsys)
    assert "cannot read 512 bytes (Input/output error): /s/commitlog/0 at 0" in error
    lines = met(25, options.PASSED_OVER, capsys)
    assert lines[0] == "mqstore: cannot read 512 bytes (Input/output error): /s/commitlog/0 at 4096"
    assert lines[-2] == "mqstore: and 5 ranges more that cannot be read"
    assert len(lines) == 21 and len(set(lines)) == 21


def test_an_answer_that_is_none_because_of_them_ends_with_their_error(capsys: pytest.CaptureFixture[str]) -> None:
    """What was not found could be there; where they are a part of the answer its own code counts."""
    with pytest.raises(UnreadableRange), options.reporting_unreadable(options.PASSED_OVER, options.Common(), None):
        note(unread(0))
        raise NotFound("no such message")
    assert capsys.readouterr().err == "mqstore: no such message\n"
    with pytest.raises(NotFound), options.reporting_unreadable(options.FOUND, options.Common(), None):
        note(unread(0))
        raise NotFound("no such message")
    with pytest.raises(NotFound), options.reporting_unreadable(options.PASSED_OVER, options.Common(), None):
        raise NotFound("no such message")


def test_a_journal_is_kept_outside_of_its_store_in_a_directory(tmp_path: Path) -> None:
    layout = Layout.open(stores.unpack("4.9.7-clean", tmp_path))
    with pytest.raises(Missing):
        options.keep_journal_in(layout, tmp_path / "none")
    (tmp_path / "link").symlink_to(layout.root / "config")
    for inside in (layout.root, layout.root / "config", tmp_path / "link"):
        with pytest.raises(Exception, match="--journal: name a directory outside the store"):
            options.keep_journal_in(layout, inside)
    other, elsewhere = stores.unpack("5.3.3-clean", tmp_path / "other"), tmp_path / "log"
    shutil.copytree(other / "commitlog", elsewhere)
    for taken in (other / "commitlog", other / "consumequeue" / "orders", other / "config", elsewhere):
        with pytest.raises(Exception, match="is used by the broker for its own files"):
            options.keep_journal_in(layout, taken)
    with pytest.raises(Exception, match="--journal: name a directory outside the store"):
        options.keep_journal_in(Layout.of(other, BrokerConfig({"storePathCommitLog": str(elsewhere)})), elsewhere)
    layout.journal.mkdir(parents=True)  # one that was begun there can be ended
    options.keep_journal_in(layout, elsewhere)
    options.keep_journal_in(layout, tmp_path)
    assert layout.journal.is_relative_to(tmp_path) and not layout.journal.is_relative_to(layout.root)


@pytest.fixture
def copied(tmp_path: Path) -> tuple[Path, Path]:
    """A store and a copy of it."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    return root, Path(shutil.copytree(root, tmp_path / "copy"))


def test_the_log_of_another_store_is_not_written(copied: tuple[Path, Path]) -> None:
    """The configuration of the original, for a copy; unless links and the like may lead elsewhere."""
    root, copy = copied
    (copy / "abort").touch()
    held = everything(root)
    named = ["--set", f"storePathCommitLog={root / 'commitlog'}"]
    for command in (["put", str(copy), "orders", "x"], ["recover", str(copy), "--apply", "--yes"]):
        answer = run_here([*command, *named])
        assert answer.code == 5 and "the commit log of another store" in answer.stderr
        assert f"--set storePathCommitLog={copy / 'commitlog'}" in answer.stderr
    assert everything(root) == held
    assert run_here(["recover", str(copy), "--apply", "--yes", *named, "--follow-links"]).code == 0


def test_nor_is_one_on_a_disk_of_its_own(tmp_path: Path) -> None:
    """The configuration says whose it is: a copy, and a new store below the original, are others. Beside something that
    is no store, for a link in the store, and without storePathRootDir, there is nothing to refuse.
    """
    root = stores.unpack("5.3.3-clean", tmp_path)
    disk = tmp_path / "disk"
    disk.mkdir()
    (disk / "lock").mkdir()
    log = shutil.move(root / "commitlog", disk / "commitlog")
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    named = ["--set", f"storePathCommitLog={log}", "--set", f"storePathRootDir={root}"]
    held = everything(disk)
    for store in (copy, root / "backup"):
        assert "the commit log of another store" in run_here(["put", str(store), "orders", "x", *named]).stderr
    assert everything(disk) == held
    assert run_here(["put", str(root), "orders", "x", *named]).code == 0
    assert run_here(["put", str(root), "orders", "x", *named[:2]]).code == 0
    (root / "commitlog").symlink_to(log)
    assert "another store" not in run_here(["put", str(root), "orders", "x"]).stderr


def test_whose_log_is_read_is_said(copied: tuple[Path, Path]) -> None:
    """Of a store, and of a file in one; not of the store that it belongs to, whatever its path is."""
    root, copy = copied
    (root.parent / "link").symlink_to(root)
    named = ["--set", f"storePathCommitLog={root / 'commitlog'}"]
    warning = f"mqstore: {copy}: the configuration names the commit log of another store: {root / 'commitlog'}\n"
    for path, told in ((copy, warning), (root, ""), (root.parent / "link", ""), (root / "commitlog", "")):
        assert run_here(["dump", str(path), "--count", "1", *named]).stderr == told, path


def test_one_log_for_several_stores_is_wrong_usage(copied: tuple[Path, Path]) -> None:
    """They would be the same to `diff`; a path that is taken from each of them is right."""
    root, copy = copied
    named = ["--set", f"storePathCommitLog={root / 'commitlog'}"]
    (listed := root.parent / ".list").write_text(f"{root}\n{copy}\n")
    lines = [["diff", str(root), str(copy)], ["stats", f"{root.parent}/*"], ["verify", str(root), str(copy)]]
    lines.append(["stats", f"@{listed}"])
    for line in lines:
        answer = run_here([*line, *named])
        assert answer.code == 2 and "names one commit log" in answer.stderr
        assert run_here([*line, "--set", "storePathCommitLog=commitlog"]).code == 0
    assert run_here(["verify", str(root / "consumequeue"), str(root / "index"), *named]).code == 0, "parts of one store"


@pytest.mark.parametrize(
    "line",
    [
        ["salvage", "image"],
        ["damage", "store", "--scenario", "torn-tail"],
        ["repair", "store", "--convert", "plain"],
        ["export", "store"],
        ["pipeline", "rebuild", "store"],
    ],
    ids=lambda line: line[0],
)
def test_a_dash_is_no_directory(line: list[str]) -> None:
    """It is what others call stdout; a directory of that name was made."""
    answer = run_here([*line, "--to", "-"])
    assert answer.code == 2 and "'--to': - is not accepted as a path" in answer.stderr


def test_a_line_that_stderr_cannot_take_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever prints it goes on."""
    with io.TextIOWrapper(io.FileIO("/dev/full", "w"), write_through=True) as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        options.Common().warn("3 messages are lost")


def test_of_several_stores_each_is_asked_for_the_broker_that_reads_broker_conf(tmp_path: Path) -> None:
    """What is no store, or of another generation, hides nothing of what a broker does not take."""
    conf = tmp_path / "broker.conf"
    conf.write_text("mapedFileSizeCommitLog=262144\n")
    roots = [str(stores.unpack(name, tmp_path)) for name in ("5.1.4-clean", "4.3.1-clean")]
    for named in (roots, [roots[0], str(tmp_path / "none")]):
        assert (
            "use mappedFileSizeCommitLog instead" in run_here(["verify", *named, "--broker-config", str(conf)]).stderr
        )


def test_a_broker_conf_that_leaves_out_the_sizes_of_the_files(tmp_path: Path) -> None:
    """Files tell them to mqstore; who says what a broker does says that they do not tell it to brokers."""
    root, conf = stores.unpack("5.3.3-clean", tmp_path), tmp_path / "broker.conf"
    sizes = {"mappedFileSizeCommitLog": 262144, "mappedFileSizeConsumeQueue": 1000, "maxHashSlotNum": 97}
    named = [f"{name}={value}\n" for name, value in {**sizes, "maxIndexNum": 400}.items()]
    for line in named:
        conf.write_text("".join(each for each in named if each != line))
        name, _, value = line.strip().partition("=")
        for command in ("verify", "recover", "repair"):
            answer = run_here([command, str(root), "--broker-config", str(conf)])
            assert answer.code == 0
            assert f"{conf}: {name} is not set: a broker uses " in answer.stderr
            assert f"the files have {value} (of {root})" in answer.stderr
    assert not run_here(["get", str(root), "--topic", "orders", "--broker-config", str(conf)]).stderr
    conf.write_text("".join(named))
    assert not run_here(["verify", str(root), "--broker-config", str(conf)]).stderr


@pytest.mark.parametrize(
    ("name", "line", "version", "told"),
    [
        (
            "4.9.7-clean",
            "mappedFileSizeCommitLog=262144 ",
            "4.9",
            "(the blank counts): the default is used, 1073741824",
        ),
        ("4.9.7-clean", "mapedFileSizeCommitLog=262144", "4.9", "mappedFileSizeCommitLog instead: 1073741824 is used"),
        ("5.5.1-clean", "mapedFileSizeCommitLog=262144", None, "mappedFileSizeCommitLog instead: 1073741824 is used"),
        ("4.3.1-clean", "mapedFileSizeCommitLog=262144", None, "since 4.5.2 use mappedFileSizeCommitLog instead\n"),
        ("4.9.7-clean", "mappedFileSizeCommitLog=262144\nmapedFileSizeCommitLog=8192", "4.9", "262144 is used"),
        (
            "5.5.1-clean",
            "mappedFileSizeConsumeQueue=1_000",
            None,
            "not a number for brokers: the default is used, 6000000",
        ),
        ("5.5.1-clean", "storePathCommitLog=commitlog ", None, ""),
        ("5.5.1-clean", "storePathCommitLog=commitlog ", "5.1", "brokers before 5.2 keep the blank"),
    ],
)
def test_broker_conf_is_read_as_that_broker_reads_it(
    name: str, line: str, version: str | None, told: str, tmp_path: Path
) -> None:
    """It starts where the value is taken, and only there; what it does not take is told."""
    root, conf = stores.unpack(name, tmp_path), tmp_path / "broker.conf"
    conf.write_text(f"{line}\n")
    starts = not told or "262144 is used" in told or told.endswith("instead\n")
    given = ["--broker-config", str(conf), *(["--broker-version", version] if version else [])]
    for command in ("verify", "recover"):
        answer = run_here([command, str(root), *given])
        lines = [line for line in answer.stderr.splitlines(keepends=True) if " is not set: " not in line]
        assert (told in "".join(lines) if told else not lines) and (answer.code == 0) == starts, answer
    assert "mqstore" not in run_here(["verify", str(root), *given, "--quiet"]).stderr


@pytest.mark.parametrize(("log", "code"), [("", 0), ("storePathCommitLog={}/commitlog", 1)])
def test_it_is_said_for_which_broker_the_answer_is(log: str, code: int, tmp_path: Path) -> None:
    """A store that was moved, with a broker.conf in which one line was forgotten, or both."""
    root, conf = stores.unpack("5.3.3-clean", tmp_path), tmp_path / "broker.conf"
    sizes = {key: value for key, value in stores.config("5.3.3-clean", root).items() if not key.startswith("storePath")}
    lines = [*(f"{key}={value}" for key, value in sizes.items()), "storePathRootDir=/gone", log.format(root)]
    conf.write_text("\n".join(lines))
    answer = run_here(["recover", str(root), "--broker-config", str(conf)])
    assert answer.code == code, answer
    assert "storePathRootDir=/gone" in answer.stderr
    assert ("a broker reads this log with the queues and the configuration there" in answer.stdout) == bool(log)
    assert not run_here(["verify", str(root), "--broker-config", str(conf), "--set", f"storePathRootDir={root}"]).code
