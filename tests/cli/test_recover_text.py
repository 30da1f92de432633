"""The page of `recover`: the verdict, and the command that comes next."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest

from mqstore.formats.checkpoint import FIELDS
from mqstore.formats.epoch_file import FILE as EPOCH_FILE
from mqstore.store.inspect.pop import pop
from mqstore.store.recover import broker_bugs

from .. import recovery_cases, stores
from ..dledger_mishaps import entry_starts
from ..store.disk.test_lock import other_process
from ..store.verify.damaged import give_twice
from ..store.verify.mutations import mutations
from ..store.verify.mutations.edit import overwrite
from .damaged_case import SIZES, of_case
from .datadriven import run_here

pytestmark = pytest.mark.long


@pytest.mark.parametrize("options", [["--lost-tag", "gone"], ["--policy", "broker"]])
def test_the_command_to_go_on_with(options: list[str], tmp_path: Path) -> None:
    root, _ = of_case("body_crc_middle", tmp_path)
    version = ["--broker-version", "5.4"]
    page = run_here(["recover", str(root), *SIZES, *version, *options]).stdout
    sizes = [word for size in SIZES for word in ("--set", size.removeprefix("--set="))]
    wanted = shlex.join(["--apply", *options, *version, *sizes])
    assert page.splitlines()[-1] == f"Next: mqstore recover {root} {wanted}"


def test_a_message_that_stays_unread_is_told_before_and_after(tmp_path: Path) -> None:
    """Another one has its queue offset: only a plain store has room for both."""
    root = stores.unpack("5.3.3-dledger", tmp_path)
    give_twice(root, named=False)
    (root / "abort").touch()
    before = run_here(["recover", str(root)]).stdout
    assert before.splitlines()[0].endswith(" --apply` loses no message; 1 message stays unread.")
    run_here(["recover", str(root), "--apply", "--yes"])
    after = run_here(["recover", str(root)]).stdout.splitlines()
    convert = f"mqstore repair {root} --convert plain --to {root}-plain"
    assert after[0].endswith(f"`{convert}` is next.") and after[-1] == f"Next: {convert}"


@pytest.mark.parametrize("words", [[], ["--apply", "--yes"]])
def test_nobody_is_told_to_start_a_second_broker(words: list[str], tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path)
    with other_process(root / "lock"):
        said = run_here(["recover", str(root), *words]).stdout
    assert said.endswith("Next: nothing to do; a process uses the store.\n"), said


@pytest.mark.parametrize("words", [["recover"], ["repair", "--all"]])
@pytest.mark.parametrize("damaged", [False, True])
def test_what_would_be_refused_is_not_proposed(words: list[str], damaged: bool, tmp_path: Path) -> None:
    """While a process has the store; and whatever looks, the exit code is the same."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    (root / "abort").touch()
    if damaged:
        with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
            file.seek(50_000)
            file.write(b"x" * 40)
    command, *options = words
    with other_process(root / "lock"):
        said = run_here([command, str(root), *options])
        next_ = json.loads(run_here([command, str(root), *options, "--format=json"]).stdout)["next"]
    assert said.code == int(damaged) and next_ == []
    assert "`" not in said.stdout and "--apply " not in said.stdout
    assert said.stdout.endswith("Next: stop the process that uses the store, then run this command again.\n"), said


def test_what_a_kill_would_do_is_no_error_of_a_store_in_use(tmp_path: Path) -> None:
    """The first sentence and the exit code are those of `verify`."""
    root = stores.unpack("5.3.3-timer-clean", tmp_path)
    words = [str(root), "--broker-version", "4.9"]
    with other_process(root / "lock"):
        said, verified = (run_here([name, *words]) for name in ("recover", "verify"))
    first = said.stdout.splitlines()[0]
    assert (said.code, verified.code) == (0, 0)
    assert first.startswith("In use, and in order. After a kill now a broker 4.9 would leave ")
    assert verified.stdout.startswith(f"{root}: In use, and in order (")
    assert run_here(["recover", *words]).code == 1


def test_the_next_command_repeats_the_options(tmp_path: Path) -> None:
    """Carried out as it stands it does what was shown."""
    root, options = of_case("body_crc_middle", tmp_path)
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=a\n")
    (tmp_path / "other").mkdir()
    given = [*options, "--broker-config", str(conf), "--journal", str(tmp_path / "other")]
    shown = run_here(["recover", str(root), *given]).stdout
    command = shlex.split(shown.rpartition("Next: ")[2])
    assert command[:2] == ["mqstore", "recover"]
    for name, value in recovery_cases.CONFIG.items():
        assert f"{name}={value}" in command
    assert str(conf) in command and str(tmp_path / "other") in command
    assert run_here([*command[1:], "--yes"]).code == 1
    assert run_here(["recover", str(root), *options]).code == 0


@pytest.mark.parametrize("name", ["5.3.3-clean", "5.3.3-killed"])
def test_a_configuration_that_does_not_suit_the_store(name: str, tmp_path: Path) -> None:
    """The plan changes nothing of that: it is not said to save what a start loses, nor proposed."""
    root = stores.unpack(name, tmp_path)
    result = run_here(["recover", str(root), "--set", "duplicationEnable=true"])
    assert result.code == 1 and "`mqstore recover" not in result.stdout
    assert result.stdout.endswith("with a configuration that fits this store.\n")
    assert "does not fit this store" in result.stdout.splitlines()[0]
    assert "the plan" not in result.stdout
    assert re.search(r"^ +a start  messages lost of topic$", result.stdout, re.MULTILINE)


@pytest.mark.parametrize(("policy", "said"), [("keep", "1 message"), ("broker", "186 messages; the master sends")])
def test_a_slave_is_told_what_its_master_has(policy: str, said: str, tmp_path: Path) -> None:
    """A cut at damage in the middle of its log loses the damaged message and 185 behind it, and none that its master
    still has.
    """
    root = stores.unpack("5.3.3-ha-slave", tmp_path)
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(86598)
        file.write(bytes(486))
    page = run_here(["recover", str(root), "--set", "brokerRole=SLAVE", "--policy", policy]).stdout
    assert f" loses {said}" in page.splitlines()[0]
    assert ("`--policy broker` cuts the log there, too" in page) == (policy == "keep")


@pytest.mark.parametrize(("peers", "place"), [("n0-h:1", 0), ("n0-h:1;n1-h:2", 0), ("n0-h:1;n1-h:2", 48)])
def test_a_node_of_a_dledger_group_is_told_what_its_leader_has(peers: str, place: int, tmp_path: Path) -> None:
    """A start notices a damaged head of an entry, which the plan corrects, and no damaged record."""
    root = stores.unpack("5.3.3-dledger", tmp_path)
    path = root / "dledger-n0" / "data" / f"{49152:020d}"
    start = entry_starts([path])[5] + place
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(20))
    page = run_here(["recover", str(root), "--set", f"dLegerPeers={peers}"]).stdout
    assert ("a node that is elected sends its own" in page) == bool(place)
    assert (f"a start ends the log at {49152 + start:,}." in page) == (";" in peers and not place)
    assert ("a start does not notice the damage." in page) == bool(place)
    told = run_here(["verify", str(root), "--set", f"dLegerPeers={peers}"]).stdout
    assert not any(" --apply --policy broker " in text for text in (page, told))  # which would cut what a start keeps


def test_what_a_start_does_not_read_is_found_once_and_has_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, looked = stores.unpack("5.3.3-pop", tmp_path), Mock(wraps=pop)
    mutations()["I-190"].mutate(root, Random("renamed"))
    monkeypatch.setattr(broker_bugs, "pop", looked)
    lines = run_here(["recover", str(root), "--set", "brokerClusterName=TestCluster"]).stdout.splitlines()
    told = lines[lines.index("What waits where a start does not read it:") + 1]
    assert told.startswith("  a broker 5.3 would never give again 30 messages that POP consumers of ")
    assert "; first run a broker that reads them until they are acknowledged, or " in told
    assert looked.call_count == 1


def test_every_message_of_a_batch_record_counts(tmp_path: Path) -> None:
    """Of 182 messages in 80 records: whatever is lost, by a start or a plan, with the log or without it."""
    root = stores.unpack("5.3.3-batchcq", tmp_path)
    assert "  messages   182\n" in run_here(["recover", str(root)]).stdout
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(40_000)
        file.write(bytes(3_000))
    page = run_here(["recover", str(root)]).stdout
    assert page.startswith("Do not start a broker: a broker 5.3 would lose 151 messages of 2 topics. ")
    assert "  messages   178, and 4 with a damaged body\n" in page and "/0 at 13 to 16  " in page
    found = json.loads(run_here(["recover", str(root), "--policy", "broker", "--format", "json"]).stdout)
    assert found["summary"]["lost_by_plan"] == 155 and found["plan"]["lost_messages_left_off"] == 0
    assert sum(row.get("batch_size", 1) for row in found["plan"]["lost_messages"]) == 155
    assert (found["prediction"]["readable"], found["summary"]["messages"]) == (27, 178)
    (root / "commitlog" / f"{0:020d}").unlink()
    assert "loses 182 messages." in run_here(["recover", str(root), "--force-empty-log"]).stdout.splitlines()[0]


def test_a_dledger_broker_has_no_master(tmp_path: Path) -> None:
    """Whatever its role is called: nobody sends again what units behind the end of its log name."""
    root = stores.unpack("5.3.3-dledger", tmp_path)
    (root / "abort").touch()
    with (root / "dledger-n0" / "data" / f"{98304:020d}").open("r+b") as file:
        file.seek(12000)
        file.write(bytes(11148))
    page = run_here(["recover", str(root), "--set", "brokerRole=SLAVE", "--policy", "broker"]).stdout
    assert page.splitlines()[0].endswith(" loses 4 messages.")


@pytest.mark.parametrize(
    ("name", "version", "writer"), [("5.3.3-v2", "4.9", "5.3"), ("4.9.7-ipv6", "4.3", "4.9"), ("5.3.3-v2", "5.3", "")]
)
def test_a_version_that_does_not_know_the_records(name: str, version: str, writer: str, tmp_path: Path) -> None:
    """A real 4.9.7 gives 90 of the 190 messages; no configuration helps."""
    page = run_here(["recover", str(stores.unpack(name, tmp_path)), "--broker-version", version]).stdout
    told = f"No file needs repair: a broker {writer} wrote the store, and {version} does not know all its records."
    assert page.splitlines()[0].endswith(told) == bool(writer), page
    assert page.endswith(f"Next: start the broker of version {writer} or later.\n") == bool(writer), page
    assert "configuration" not in page


def test_a_plan_does_not_bring_back_the_first_files(tmp_path: Path) -> None:
    """Deleted by hand: no broker ran long enough to delete them. A replica's are named before anything is changed."""
    root = stores.unpack("5.3.3-killed", tmp_path)
    shutil.copytree(root, replica := tmp_path / "replica")
    (root / "commitlog" / f"{0:020d}").unlink()
    asked = run_here(["recover", str(root)])
    assert asked.code == 3
    assert "its first files are gone, before their time. `mqstore recover " in asked.stdout.splitlines()[0]
    assert "--apply` does not bring them back: first look for the files" in asked.stdout.splitlines()[0]
    named = run_here(["recover", str(root), "--replica", str(replica)])
    assert named.code == 1
    assert f"first: cp -a {replica}/commitlog/{0:020d} {root}/commitlog." in named.stdout.splitlines()[0]
    done = run_here(["recover", str(root), "--apply", "--yes"])
    assert done.code == 0
    assert done.stdout.startswith("Done: recovered. A broker can be started, but ")
    assert run_here(["verify", str(root)]).stdout.startswith(f"{root}: Safe to start, but ")


def test_what_a_broker_with_a_controller_leaves_to_a_master_is_not_called_kept(tmp_path: Path) -> None:
    """This broker may be made the master, and the messages are gone then: text and exit code say so, for every command.
    A file of epochs shows a controller, and brokerRole says nothing where there is one.
    """
    root = stores.unpack("5.3.3-killed", tmp_path)
    at = sorted(row["physical_offset"] for row in stores.messages("5.3.3-killed"))[-2]
    last = max(path for path in (root / "commitlog").iterdir() if int(path.name) <= at)
    with last.open("r+b") as file:
        file.seek(at - int(last.name))
        file.write(bytes(int(last.name) + last.stat().st_size - at))
    (root / EPOCH_FILE).write_text("1\n0\n1-0\n")
    controller, slave = "--set enableControllerMode=", "--set brokerRole=SLAVE"
    sender = {1: "another master", 0: "the master"}
    for number, (options, code) in enumerate(
        (("", 1), (f"{controller}true {slave}", 1), ("--policy broker", 1), (f"{controller}false {slave}", 0))
    ):
        copy = tmp_path / f"{number}"
        shutil.copytree(root, copy)
        done = run_here(["recover", str(copy), *options.split(), "--apply", "--yes"])
        told, *_, following = done.stdout.splitlines()
        sentence = f"Start this broker last: the log has lost its end, 498 bytes from {at:,} on"
        start = (
            f"{sentence}: they are gone, unless another master sends them again."
            if code
            else "A broker can be started."
        )
        come = f"2 messages come again from {sender[code]}, if still there"
        assert (done.code, told) == (code, f"Done: recovered, no message lost; {come}. {start}")
        assert ("and this one last; if no other broker has it, start this one: " in following) == bool(code)
        assert ("bring it back, also after --apply" in done.stdout) == bool(code)
        for command in ("verify", "inspect", "recover"):  # also of the next command
            named = [] if "policy" in options else options.split()
            assert (sentence in run_here([command, str(copy), *named]).stdout.splitlines()[0]) == bool(code)


def test_the_end_that_only_the_checkpoint_names_is_told_and_comes_back_from_a_replica(tmp_path: Path) -> None:
    """No unit is left, and no repair lowers the confirmed offset: a start does, and then nothing tells of it."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    (root / EPOCH_FILE).write_text("1\n0\n1-0\n")
    whole = Path(shutil.copytree(root, tmp_path / "whole"))
    last = max(stores.messages("5.3.3-clean"), key=lambda row: row["physical_offset"])
    at, size = last["physical_offset"], last["total_size"]
    overwrite(max((root / "commitlog").iterdir()), at % 262_144, bytes(size))
    alone = ["--policy", "broker", "--set", "enableControllerMode=false"]
    assert run_here(["recover", str(root), "--apply", "--yes", *alone]).code == 1
    assert run_here(["verify", str(root)]).code == 0
    fields = FIELDS.parse((root / "checkpoint").read_bytes())
    assert fields.confirm_phy_offset < at
    overwrite(root / "checkpoint", 0, FIELDS.build(fields | {"confirm_phy_offset": at + size}))
    run_here(["repair", str(root), "--checkpoint", "--apply", "--yes"])
    shown = run_here(["verify", str(root)])
    last_one = f"Start this broker last: the log has lost its end, {size} bytes from {at:,} on: they are gone"
    assert shown.code == 1 and last_one in shown.stdout and "[I-113]" not in shown.stdout
    assert "this one last; if no other broker has it, start this one: nothing more is lost." in shown.stdout
    assert run_here(["inspect", str(root)]).stdout.startswith(last_one)
    assert run_here(["recover", str(root), "--apply", "--yes", "--replica", str(whole)]).code == 0
    assert run_here(["verify", str(root)]).code == 0
    assert run_here(["diff", str(root), str(whole), "--quick"]).code == 0


@pytest.mark.parametrize("there", [10, 100])  # without and with its own position
def test_a_slave_that_has_a_part_of_the_next_record_has_lost_nothing(there: int, tmp_path: Path) -> None:
    """Masters send parts of records, and a slave of 5.5.1 that was shut down after one had confirmed the part."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    (root / EPOCH_FILE).write_text("1\n0\n1-0\n")
    last = max(stores.messages("5.3.3-clean"), key=lambda row: row["physical_offset"])
    at, size = last["physical_offset"], last["total_size"]
    alone = ["--policy", "broker", "--set", "enableControllerMode=false"]
    file = max((root / "commitlog").iterdir())
    record = file.read_bytes()[at % 262_144 :][:size]
    overwrite(file, at % 262_144, bytes(size))
    run_here(["recover", str(root), "--apply", "--yes", *alone])  # no unit names it
    overwrite(file, at % 262_144, record[:there])
    fields = FIELDS.parse((root / "checkpoint").read_bytes())
    for reached in (size, there):
        overwrite(root / "checkpoint", 0, FIELDS.build(fields | {"confirm_phy_offset": at + reached}))
        for command in ("verify", "inspect", "recover"):
            assert ("the log has lost its end" in run_here([command, str(root)]).stdout) == (reached == size)
    assert run_here(["recover", str(root), "--apply", "--yes"]).code == 0
    assert run_here(["verify", str(root)]).stdout.split(": ")[1].startswith("Safe to start")


def test_what_a_plan_cuts_off_stays_known_where_a_controller_may_make_a_master(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-killed-bit", tmp_path)
    (root / EPOCH_FILE).write_text("1\n0\n1-0\n")
    assert run_here(["recover", str(root), "--apply", "--yes", "--policy", "broker"]).code == 1
    shown = run_here(["verify", str(root)])
    assert shown.code == 1 and ": Start this broker last: the log has lost its end, " in shown.stdout


def test_what_only_queues_name_is_counted_once(tmp_path: Path) -> None:
    """Without a log all of that is lost, and nothing lies behind an end."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    for path in (root / "commitlog").iterdir():
        path.unlink()
    page = run_here(["recover", str(root), "--force-empty-log"]).stdout
    assert re.search(r"--force-empty-log` loses [0-9]+ messages\.$", page.splitlines()[0])


def test_what_comes_back_over_tombstones_is_told_and_indexed(tmp_path: Path) -> None:
    """The first recovery has indexed the log with tombstones, which have no keys. An index that still has the keys of
    the records stays.
    """
    name, damaged = "5.3.3-clean", range(150_000, 150_300)
    root, replica = (stores.unpack(name, tmp_path / place) for place in ("store", "replica"))
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(damaged.start)
        file.write(bytes(len(damaged)))
    words = ["recover", str(root), "--replica", str(replica)]
    assert str(root / "index") not in run_here([*words, "--format", "json"]).stdout
    lost = [m for m in stores.messages(name) if set(damaged) & set(range(*span_of(m)))]
    for old in (root / "index").iterdir():
        old.unlink()
    assert "lost. A broker can be started." in run_here(["recover", str(root), "--apply", "--yes"]).stdout
    shown, done = run_here(words), run_here([*words, "--apply", "--yes"])
    come = f"{len(lost)} messages come" if len(lost) > 1 else "1 message comes"
    told = f"Safe to start. {come} back from the replica: `mqstore recover {root} --apply --replica {replica}`."
    assert (shown.code, shown.stdout.partition("\n")[0]) == (0, told)
    assert done.stdout.startswith("Done: recovered, no message lost. A broker can be started.\n") and done.code == 0
    assert run_here(["verify", str(root)]).stdout.startswith(f"{root}: Safe to start")
    for message in lost:
        found = run_here(["get", str(root), "--key", message["properties"]["UNIQ_KEY"], "--format", "ndjson"])
        assert json.loads(found.stdout.splitlines()[0])["physical_offset"] == message["physical_offset"]


def span_of(message: dict[str, Any]) -> tuple[int, int]:
    """Begin and end of a message in the log."""
    return message["physical_offset"], message["physical_offset"] + message["total_size"]
