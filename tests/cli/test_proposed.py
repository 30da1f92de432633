"""Whatever is proposed to be run can be pasted: its words are a command's, and its paths are there."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from os import fspath
from pathlib import Path
from random import Random

import pytest

from mqstore.cli.app import program
from mqstore.cli.verify_text import page
from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.formats.timer_check import FILE as TIMER_CHECK
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.checkpoint import TimerCheck
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import NotFound
from mqstore.store.findings.findings import Finding
from mqstore.store.findings.next_commands import Given, settings
from mqstore.store.repair.parts import Choice
from mqstore.store.repair.recheck import unrepairable_of
from mqstore.store.repair.repair import Request, replan
from mqstore.store.session.apply import apply
from mqstore.store.session.journal import SessionState, barriers, unfinished
from mqstore.store.session.undo import session_to_undo, undo
from mqstore.store.verify.verdict import Status, Verdict, findings_json

from .. import slices, stores
from ..store.put.faults import Killed, KilledFiles
from ..store.verify.mutations import copied, mutations, original
from .advice import verified
from .datadriven import run_here
from .test_advice import CASES, DEFAULT, Case, gone, mutation, scenario

pytestmark = pytest.mark.long

PLACEHOLDER = re.compile(r"[{}]|\b[A-Z]{4,}(_[A-Z]+)*\b")
"""A name that somebody would have to fill in; options and their values have their own letters."""
SHOWS = ("get", "dump", "inspect", "explain")
BY_HAND = ("mv", "cp", "touch", "chmod", "chown", "gunzip", "zstd", "df")


def parses(line: str) -> list[str]:
    """The words of a command line, which the command takes."""
    words = shlex.split(line)
    if words[0] == "mqstore":
        group = program()
        context = group.make_context("mqstore", words[1:])
        name, command, rest = group.resolve_command(context, words[1:])
        command.make_context(name, rest, parent=context)
    else:
        assert words[0] in BY_HAND, line
    return words


def check_line(line: str, config: dict[str, str]) -> None:
    """A command that is proposed for a store of that configuration can be pasted."""
    words = parses(line)
    own = [word for word in words if word not in settings(config)]
    assert not PLACEHOLDER.search(" ".join(word for word in own if "/" not in word)), line
    made = {words[-1]} if words[0] in ("mv", "cp") else set()
    if "--to" in words:
        made.add(words[words.index("--to") + 1])
    for word in own:
        if word.startswith("/") and word not in made:
            assert Path(word).exists(), f"{line}: {word}"
    assert not any(Path(word).exists() for word in made if words[0] != "cp"), line
    if words[0] == "mqstore" and words[1] in SHOWS:
        result = run_here([*words[1:], "--format", "json"])
        assert result.code == 0, f"{line}: {result.stderr}"


def proposed(root: Path, config: dict[str, str]) -> Iterator[str]:
    """Every command line that `verify`, `recover`, `repair` and `inspect` propose for a store."""
    given = Given(settings(config))
    verdict = verified(root, config)
    yield from (row["repair"] for row in findings_json(verdict, root, given) if row["repair"])
    layout = Layout.open(root, BrokerConfig(config))
    yield from (row.command for row in unrepairable_of(verdict, layout) if row.command)
    options = shlex.split(" ".join(shlex.quote(word) for word in settings(config)))
    for command in ("recover", "repair"):
        result = run_here([command, fspath(root), *options, "--format", "json"])
        if result.stdout:
            answer = json.loads(result.stdout)
            yield from answer["next"]
            yield from (row["command"] for row in answer.get("beyond_repair", ()) if row["command"])
    for command in ("verify", "recover", "repair", "inspect"):
        yield from commands_in(run_here([command, fspath(root), *options]).stdout)


def commands_in(page: str) -> Iterator[str]:
    """Command lines of a page for people: on a line of their own, behind a word, or in backticks."""
    for line in page.splitlines():
        yield from re.findall(r"`(mqstore [^`]*)`", line)
        text = re.sub(r"^(Next|Then): ", "", line.strip())
        text = text.rpartition(" Next: ")[2]
        if text.split(" ")[0] in ("mqstore", *BY_HAND):
            yield re.sub(r"  # .*", "", text).strip()


def check(case: Case, work: Path) -> None:
    """Damage a copy; each command that is proposed can be pasted."""
    whole = original(case.store, work)
    root = copied(whole, work)
    config = stores.config(case.store, root)
    try:
        case.damage(case.store, whole, root)
    except NotFound:
        return
    for line in dict.fromkeys(proposed(root, config)):
        check_line(line, config)


FAST = [
    *(Case(m.stores[0], code, mutation(code)) for code, m in list(mutations().items())[::40]),
    *(Case(DEFAULT, name, scenario(name)) for name in ("index-endless", "queue-order", "stray-file")),
    Case(DEFAULT, "I-049", mutation("I-045")),
    Case("5.3.3-timer-clean", "queue-order", scenario("queue-order")),
]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where stores are unpacked and damaged."""
    return tmp_path_factory.mktemp("proposed")


@pytest.mark.few(2)
@pytest.mark.parametrize("case", FAST, ids=str)
def test_what_is_proposed_can_be_pasted(case: Case, work: Path) -> None:
    check(case, work)


@pytest.mark.slow
@pytest.mark.parametrize("case", slices.pick(CASES, "proposed"), ids=str)
def test_what_is_proposed_for_any_damage_can_be_pasted(case: Case, work: Path) -> None:
    check(case, work)


def test_a_barrier_is_told_by_all_with_the_command_that_removes_it(work: Path) -> None:
    """`inspect` sees it, too, and `repair` does not say that nothing is to be done."""
    root = copied(original(DEFAULT, work), work)
    mutations()["I-185"].mutate(root, Random("page"))
    for command in ("verify", "recover", "repair", "inspect"):
        told = run_here([command, str(root)]).stdout
        assert "Do not start a broker: a start barrier is left" in told, command
        assert f"mqstore recover {root} --apply" in told, command
    assert run_here(["recover", str(root), "--apply", "--yes"]).code == 0
    assert run_here(["verify", str(root)]).code == 0


def test_a_barrier_alone_makes_nothing_beyond_repair(work: Path) -> None:
    """What has only to be ended is no damage that stays."""
    root = copied(original(DEFAULT, work), work)
    mutations()["I-185"].mutate(root, Random("page"))
    for options in ([], ["--all"]):
        told = run_here(["repair", str(root), *options]).stdout
        assert "Beyond repair" not in told and told.rstrip().endswith(f"Next: mqstore recover {root} --apply")
    assert run_here(["repair", str(root), "--queues", "--apply", "--yes"]).code == 0
    assert not barriers(Layout.open(root))


@pytest.mark.few(1)
@pytest.mark.parametrize("elsewhere", [True, False])
@pytest.mark.parametrize("undone", [True, False])
def test_the_command_that_ends_what_was_cut_off_is_the_first_one(undone: bool, elsewhere: bool, work: Path) -> None:
    """Of `recover` and of `undo`, with the journal in the store or in a directory with an odd name."""
    root = copied(original(DEFAULT, work), work)
    gone("consumequeue")(DEFAULT, root, root)
    place = work / f"journals {{of}} '{undone}"
    place.mkdir(exist_ok=True)
    cut_off(root, place if elsewhere else None, undone=undone)
    words = ["mqstore", "undo" if undone else "recover", str(root), *([] if undone else ["--apply"])]
    line = shlex.join([*words, *(["--journal", str(place)] if elsewhere else [])])
    for command in ("verify", "recover", "repair", "inspect"):
        page = run_here([command, str(root)]).stdout
        told = [each for each in commands_in(page) if "explain" not in each]
        assert "beyond repair" not in page.lower(), (command, page)
        if elsewhere or undone or command != "repair":
            assert told and set(told) == {line}, (command, page)
    rows = json.loads(run_here(["verify", str(root), "--format", "json"]).stdout)
    assert {row["repair"] for row in rows if row.get("repair", "").startswith("mqstore re")} <= {line}
    assert [row["repair"] for row in rows if row.get("code") == "I-185"] == [line]
    for command in ("recover", "repair"):
        answer = json.loads(run_here([command, str(root), "--format", "json"]).stdout)
        assert (command == "repair" and not (elsewhere or undone)) or answer["next"] == [line]
    assert run_here([*shlex.split(line)[1:], "--yes"]).code == 0
    assert "I-185" not in run_here(["verify", str(root)]).stdout


def cut_off(root: Path, place: Path | None, *, undone: bool) -> None:
    """A recovery is killed half way, or taking it back is. place: of its journal, None: the store."""
    layout = Layout.open(root)
    if place is not None:
        layout.keep_journal_in(place)
    plan = replan(layout, Request(Choice(), "5.3.3", 0))

    def killed(change: Callable[[Files], object]) -> None:
        """At the first step behind which it has begun."""
        for at in range(0, 400, 3):
            with suppress(Killed):
                change(KilledFiles(at))
            left = unfinished(root, layout.journal)
            if left is not None and (left.state is SessionState.UNDO_INTERRUPTED) == undone:
                return
        raise AssertionError(root)

    if undone:
        apply(layout, plan, lambda: plan, Files())
        killed(lambda files: undo(layout, session_to_undo(layout), files))
    else:
        killed(lambda files: apply(layout, plan, lambda: plan, files))


def test_warnings_have_their_command_on_the_page(work: Path) -> None:
    """A store that is safe to start, without its index."""
    root = copied(original(DEFAULT, work), work)
    mutations()["I-093"].mutate(root, Random("page"))
    shown = run_here(["verify", str(root)])
    head = "What now: nothing has to be done. This removes the warnings. Without --apply you see the plan:"
    assert shown.code == 0 and head in shown.stdout
    (line,) = (line for line in commands_in(shown.stdout) if "--apply" in line)
    assert run_here([*shlex.split(line)[1:], "--yes"]).code == 0
    assert "What now: nothing.\n" in run_here(["verify", str(root)]).stdout


def test_a_timer_that_fires_nothing_is_mended_before_it_is_used(work: Path) -> None:
    """No timed message waits, and the store is safe to start: but what is sent then would wait for a time to come."""
    root = copied(original(DEFAULT, work), work)
    check = TimerCheck(last_read_time_ms=4_000_000_000_000)
    (root / "config" / TIMER_CHECK).write_bytes(check.to_bytes())
    shown = run_here(["verify", str(root)])
    assert shown.code == 0 and "nothing has to be done" not in shown.stdout
    assert "What now: before timed messages are sent, mend the timer, which fires none yet. " in shown.stdout
    (line,) = (line for line in commands_in(shown.stdout) if "--apply" in line)
    assert run_here([*shlex.split(line)[1:], "--yes"]).code == 0
    assert "What now: nothing.\n" in run_here(["verify", str(root)]).stdout


def test_a_page_about_a_log_that_is_not_there_calls_nothing_beyond_repair(work: Path) -> None:
    """Neither is a plan promised."""
    root = copied(original(DEFAULT, work), work)
    for file in (root / "commitlog").iterdir():
        file.unlink()
    told = run_here(["verify", str(root)]).stdout
    assert "Do not start a broker: recovery is not possible yet" in told
    assert "beyond repair" not in told and "--apply you see" not in told


def test_a_store_in_object_storage_is_not_mended_there() -> None:
    finding = Finding.of("I-101", "s3://bucket/store/index", "the index is missing")
    verdict = Verdict(Status.DAMAGED, [finding], 1, 1, 0.0)
    text = page("s3://bucket/store", verdict, Given(), verbose=False)
    assert "copy it to a disk" in text
    assert list(commands_in(text)) == ["mqstore explain I-101"]
    (row,) = findings_json(verdict, "s3://bucket/store")
    assert row["repair"] == ""


def number_again(name: str, whole: Path, root: Path) -> str:
    """The last unit of a queue is lost, and a message is put that gets its number."""
    del name, whole
    (path,) = (root / "consumequeue" / "orders" / "0").iterdir()
    data = path.read_bytes()
    end = len(data.rstrip(b"\0")) // UNIT_BYTES * UNIT_BYTES
    path.write_bytes(data[:end] + bytes(len(data) - end))
    assert run_here(["put", str(root), "orders", "again"]).code == 0
    return f"queue offset {end // UNIT_BYTES} twice"


def followed_from(words: list[str]) -> None:
    """From a command on, what each says is next is run, until no change is proposed."""
    ran: list[str] = []
    while words:
        line = shlex.join(words)
        assert line not in ran, f"proposed again: {[*ran, line]}"
        ran.append(line)
        told = json.loads(run_here([*words[1:], "--yes", "--format", "json"]).stdout)["next"]
        words = next((shlex.split(step) for step in told if "--apply" in step), [])


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "case",
    [
        Case("5.3.3-timer-clean", "no-log", gone("timerlog/*")),
        Case(DEFAULT, "again", number_again),
        Case("5.3.3-timer-clean", "queue-order", scenario("queue-order")),
    ],
    ids=str,
)
def test_nothing_is_proposed_that_was_run_in_vain(case: Case, work: Path) -> None:
    """Of a recovered store, whose damage is beyond repair, as well: each part is asked to mend it."""
    whole = original(case.store, work)
    root = copied(whole, work)
    case.damage(case.store, whole, root)
    followed_from(["mqstore", "recover", str(root), "--apply"])
    for part in ("--queue=*", "--timer", "--index", "--all"):
        followed_from(["mqstore", "repair", str(root), part, "--apply"])
    rows = json.loads(run_here(["verify", str(root), "--format", "json"]).stdout)
    commands = [row["repair"] for row in rows if "--apply" in row.get("repair", "")]
    page = run_here(["verify", str(root)]).stdout
    assert not commands and "--apply" not in page, (commands, page)


def test_of_a_shifted_queue_the_command_that_helps_is_the_next_one(work: Path) -> None:
    """`recover` and `repair` do not send to each other: both name the queue."""
    whole = original("5.3.3-timer-clean", work)
    root = copied(whole, work)
    scenario("queue-order")("5.3.3-timer-clean", whole, root)
    options = shlex.split(shlex.join(settings(stores.config("5.3.3-timer-clean", root))))
    for command in ("recover", "repair"):
        answer = json.loads(run_here([command, str(root), *options, "--format", "json"]).stdout)
        assert answer["next"][0].startswith(f"mqstore repair {root} --queue alarms/0 --apply")
    assert run_here(["recover", str(root), *options, "--apply", "--yes"]).code == 1
    rows = json.loads(run_here(["verify", str(root), *options, "--format", "json"]).stdout)
    told = {row.get("code"): row.get("repair") for row in rows}
    assert told["I-182"] == told["I-064"] == answer["next"][0]
    assert run_here([*shlex.split(answer["next"][0])[1:], "--yes"]).code == 0
    assert run_here(["verify", str(root), *options]).code == 0


def test_what_put_names_carries_the_version_that_was_given(tmp_path: Path) -> None:
    """A recovery for another version would be planned by other rules."""
    root = stores.unpack("5.3.3-killed", tmp_path)
    told = run_here(["put", str(root), "orders", "x", "--as-broker", "4.9"])
    assert told.code == 3 and told.stderr.endswith(f"; run: mqstore recover {root} --broker-version 4.9\n"), told
    told = run_here(["put", str(root), "orders", "x"])
    assert told.stderr.endswith(f"; run: mqstore recover {root}\n"), told
