"""The page of `repair`: its parts, each name in its line."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mqstore.cli.repair_text import _after_the_move, _offsets, _parts
from mqstore.cli.terminal import page_of
from mqstore.cli.verdict_text import beyond_lines
from mqstore.formats.message import MESSAGE
from mqstore.store.broker.profiles import Profile
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.findings.catalogue import Severity
from mqstore.store.repair.recheck import Unrepairable
from mqstore.store.start.config import ConfigStart, still_lost

from .. import recovery_cases, stores
from ..dledger_mishaps import entry_starts
from ..store.repair.test_compaction import in_commit_log, record_of
from ..store.verify.mutations.edit import set_field
from .datadriven import run_here

pytestmark = pytest.mark.long

BREAK = "a\nmqstore: all is well"
ONE_LINE = "a\\nmqstore: all is well"


def found(**parts: Any) -> Any:
    return cast("Any", SimpleNamespace(**parts))


def test_offsets_that_move_are_a_line_each() -> None:
    rows = [
        found(before=1234, after=7, group=BREAK, queue=f"{BREAK}/0"),
        found(before=5, after=None, group=None, queue="SCHEDULE_TOPIC_XXXX/1"),
    ]
    _, title, *lines = page_of(_offsets(found(clamped=rows), None)).split("\n")
    assert title == "Wrong offsets:"
    assert lines == [
        f"         1,234 -> 7            {ONE_LINE} in {ONE_LINE}/0",
        "             5 -> removed      delay level in SCHEDULE_TOPIC_XXXX/1",
    ]
    assert list(_offsets(found(clamped=[]), None)) == []
    many = list(_offsets(found(clamped=rows * 10), 12))
    assert many[-1] == "  … 8 more (--verbose shows all)"


def test_what_is_beyond_repair_has_its_reason_and_what_is_left_to_do() -> None:
    one = Unrepairable(
        "I-022", Severity.FATAL, 3, BREAK, 7, BREAK, "why", "look at it", f"mqstore dump {BREAK}", "shows it"
    )
    lines = page_of(beyond_lines([one, one._replace(findings=1, command="", does="")])).split("\n")
    assert lines[1] == "Beyond repair:"
    assert lines[2] == f"  I-022  {ONE_LINE}: {ONE_LINE} (3 times)"
    assert lines[5] == f"         mqstore dump {ONE_LINE}  # shows it"
    assert lines[6].endswith("all is well") and len(lines) == 9
    assert list(beyond_lines([])) == []


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        ("files", ["enableLmq=true"], "storeType=default, no rocksdbCQDoubleWriteEnable; for LMQs enableLmq=true"),
        ("files", [], "storeType=default, no rocksdbCQDoubleWriteEnable"),
        ("rocksdb", ["enableLmq=true"], "storeType=defaultRocksDB, no rocksdbCQDoubleWriteEnable"),
    ],
)
def test_before_queues_of_another_kind_the_broker_needs_options(kind: str, options: list[str], told: str) -> None:
    layout = found(broker_config=BrokerConfig().with_set(options))
    (line,) = _after_the_move(found(layout=layout, request=found(kind=kind)))
    assert line == f"In broker.conf, before its start: {told}"


def test_parts_are_named_queues_first() -> None:
    def named(queues: list[tuple[str, int]], *parts: str, everything: bool = False) -> str:
        return _parts(found(request=found(choice=found(queues=queues, parts={*parts}, everything=everything))))

    assert named([("a", 3), ("b", 0)], "queue", "index") == "queue a/3, queue b/0, index"
    assert named([], "timer", "index") == "index, timer"
    assert named([], everything=True) == "the whole store"


def test_a_page_without_anything_to_repair_asks_for_nothing(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-killed", tmp_path)
    page = run_here(["repair", str(root), "--index"]).stdout
    assert "Nothing to repair in index." in page.splitlines()[0]
    assert "The plan:" not in page and "Next: mqstore recover" in page


def test_a_message_of_a_compaction_topic_that_is_lost_is_named(tmp_path: Path) -> None:
    """Neither its record nor that in the commit log is whole: nobody is told that nothing was lost."""
    root = stores.unpack("5.3.3-compaction", tmp_path)
    place = record_of(root, 1)
    set_field(place.file, place.at, MESSAGE, "magic_code", 0)
    set_field(*in_commit_log(root, place), MESSAGE, "store_timestamp", 367)
    looked = run_here(["recover", str(root)])
    assert looked.code == 1
    assert ", which is another message. `mqstore recover" in looked.stdout, "and no other damage"
    assert "--apply` loses 1 message." in looked.stdout
    result = run_here(["repair", str(root), "--compaction", "--apply", "--yes"])
    assert result.code == 1
    assert "Done: repaired. 1 message is lost. A broker can be started." in result.stdout
    assert f"Messages that are lost:\n          1  state/0 at {place.queue_offset}\n" in result.stdout


def test_lost_messages_of_which_the_index_alone_tells_are_counted(tmp_path: Path) -> None:
    """The same number as `recover` has: log file and queues that named them are gone, their index items go, too."""
    root = tmp_path / "store"
    shutil.copytree(recovery_cases.base("5.3.3-clean-1", tmp_path), root)
    max((root / "commitlog").iterdir()).unlink()
    shutil.rmtree(root / "consumequeue")
    asked = run_here(["recover", str(root), *recovery_cases.CONFIG.words])
    assert asked.code == 1
    assert "loses 8 messages." in asked.stdout
    result = run_here(["repair", str(root), "--all", "--apply", "--yes", *recovery_cases.CONFIG.words])
    assert result.code == 1
    assert "Done: repaired. 8 messages are lost. A broker can be started." in result.stdout
    assert "Messages that are lost:\n          8  known from the index only\n" in result.stdout
    undone = run_here(["undo", str(root), "--yes", *recovery_cases.CONFIG.words])
    assert undone.code == 0
    plan = json.loads(run_here(["repair", str(root), *recovery_cases.CONFIG.words, "--format", "json"]).stdout)["plan"]
    assert (plan["lost"], plan["lost_by_plan"]) == ([], 8)


def test_configuration_that_does_not_come_back_is_named(tmp_path: Path) -> None:
    """As `recover` says it, and with its exit code; a repair of other parts has lost none."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    offsets = root / "config" / "consumerOffset.json"
    offsets.write_bytes(bytes(offsets.stat().st_size))
    offsets.with_name(offsets.name + ".bak").unlink()
    other = run_here(["repair", str(root), "--checkpoint", "--apply", "--yes"])
    assert "Not brought back" not in other.stdout
    result = run_here(["repair", str(root), "--all", "--apply", "--yes", "--format", "json"])
    applied = json.loads(result.stdout)["applied"]
    assert result.code == 1
    assert applied["verdict"]["status"] == "clean"
    assert applied["config"]["unknown"] == ["the positions of all groups are lost"]
    assert run_here(["undo", str(root), "--yes"]).code == 0
    page = run_here(["repair", str(root), "--config", "--apply", "--yes"]).stdout.splitlines()
    assert page[0] == ("Done: repaired. Not restored: the positions of all groups are lost. A broker can be started.")
    assert "  lost     the positions of all groups are lost" in page


@pytest.mark.parametrize(("command", "option"), [("repair", "--config"), ("recover", "--apply")])
def test_what_is_still_lost_is_looked_for_once(
    command: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look reads all of config/, with its RocksDBs, again."""
    root, asked = stores.unpack("5.3.3-clean", tmp_path), list[Path]()
    (root / "config" / "topics.json").write_bytes(b"")
    (root / "config" / "topics.json.bak").unlink()

    def noted(before: ConfigStart, layout: Layout, profile: Profile) -> ConfigStart:
        asked.append(layout.root)
        return still_lost(before, layout, profile)

    monkeypatch.setattr("mqstore.cli.config_text.still_lost", noted)
    assert run_here([command, str(root), option, "--apply", "--yes"]).stdout.startswith("Done: re")
    assert asked == [root]


def test_a_node_of_a_dledger_group_is_told_to_cut_its_log(tmp_path: Path) -> None:
    """Tombstones would make its log differ from those of the others for ever."""
    root = stores.unpack("5.3.3-dledger", tmp_path)
    path = root / "dledger-n0" / "data" / f"{49152:020d}"
    with path.open("r+b") as file:
        file.seek(entry_starts([path])[5])
        file.write(bytes(300))

    def told(part: str, peers: str) -> tuple[str, str]:
        result = run_here(["repair", str(root), part, "--set", f"dLegerPeers={peers}"])
        return f"{result.stdout}{result.stderr}".replace(str(root), "S"), f"--set {shlex.quote(f'dLegerPeers={peers}')}"

    page, options = told("--all", "n0-h:1;n1-h:2")
    cut, alone = f"mqstore recover S --apply --policy broker {options}", f"mqstore repair S --all --apply {options}"
    assert f"`{cut}` ends the log before the damage: the leader sends again " in page.splitlines()[0]
    why = " With tombstones instead, this log would differ from those of the other nodes for ever."
    assert page.splitlines()[0].endswith(why)
    assert run_here(["recover", str(root), "--set", "dLegerPeers=n0-h:1;n1-h:2"]).stdout.splitlines()[0].endswith(why)
    assert page.splitlines()[-2:] == [f"Next: {cut}", f"Or, if no other node has what follows the damage: {alone}"]
    assert f"; run first what `mqstore recover S {options}` proposes: " in told("--queues", "n0-h:1;n1-h:2")[0]
    page, options = told("--all", "n0-h:1")
    assert page.splitlines()[-1] == f"Next: mqstore repair S --all --apply {options}"
    assert f"; run first: mqstore recover S --apply {options}, or use --all" in told("--queues", "n0-h:1")[0]
