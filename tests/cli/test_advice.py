"""What `verify` advises mends the store: any damage, the first command of each finding, two rounds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from mqstore.store.damage.scenario import drill
from mqstore.store.damage.scenarios import scenarios
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.errors import NotFound
from mqstore.store.findings.catalogue import Severity, catalogue
from mqstore.store.repair.recheck import why_unrepairable
from mqstore.store.search.store import StoreReader

from .. import recovery_cases, slices, stores
from ..store.verify.mutations import copied, mutations, original
from .advice import followed, told
from .datadriven import run_here

pytestmark = pytest.mark.long

Damage = Callable[[str, Path, Path], str]
"""Given a store's name, the whole one, and the copy that gets it; says what it did."""


class Case(NamedTuple):
    """A store, and what is done to it. The damage raises NotFound where there is nothing of the kind."""

    store: str
    name: str
    damage: Damage

    def __str__(self) -> str:
        return f"{self.store}-{self.name}"


PARTS = (
    *("index", "index/*", "consumequeue", "batchconsumequeue", "consumequeue_ext", "checkpoint"),
    *("consumequeue/*", "consumequeue/*/0", "consumequeue_ext/*", "batchconsumequeue/*/0"),
    *("timerwheel", "timerlog", "timerlog/*", "config/timercheck", "compaction/compactionCq/*"),
    *("compaction/compactionLog/*", "commitlog/*", "index/2*", "consumequeue/*/*/0*"),
)
"""Patterns; one of what they fit goes, which is not the first one nor the last where there are others."""


def gone(pattern: str) -> Damage:
    """A part of the store is deleted."""

    def damage(name: str, whole: Path, root: Path) -> str:
        del name, whole
        found = sorted(root.glob(pattern))
        if not found:
            raise NotFound(pattern)
        path = found[len(found) // 2]
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        return f"{path.relative_to(root)} deleted"

    return damage


def scenario(name: str) -> Damage:
    """A scenario of `mqstore damage`."""

    def damage(of: str, whole: Path, root: Path) -> str:
        shutil.rmtree(root)
        with StoreReader(whole, BrokerConfig(stores.config(of, whole))) as store:
            drill(store, root, scenarios()[name], slices.SEED, Files())
        return name

    return damage


def mutation(code: str) -> Damage:
    """What breaks an invariant."""
    return lambda _name, _whole, root: mutations()[code].mutate(root, Random(f"{slices.SEED} advice {code}"))


def check(case: Case, work: Path) -> None:
    """Damage a copy, do what is said: nothing is wrong that was not, and is not told as beyond repair."""
    whole = original(case.store, work)
    before = {row["code"] for row in told(whole, stores.config(case.store, whole))}
    root = copied(whole, work)
    config = stores.config(case.store, root)
    try:
        did = case.damage(case.store, whole, root)
    except NotFound:
        return
    left, ran = followed(root, config)
    new = [f"{row['code']} {row['message']}" for row in left if row["code"] not in before]
    assert not new, f"{case}: {did}: {new}: {ran}"


DEFAULT = "5.3.3-clean"
CASES = [
    *(Case(m.stores[0], code, mutation(code)) for code, m in mutations().items()),
    *(Case(name, s, scenario(s)) for name in stores.FEW for s in scenarios()),
    *(Case(name, f"no-{p}", gone(p)) for name in stores.FEW for p in PARTS),
]
FAST = [
    Case("5.3.3-timer-clean", "no-wheel", gone("timerwheel")),
    Case("5.3.3-timer-clean", "no-log", gone("timerlog/*")),
    Case(DEFAULT, "stray-file", scenario("stray-file")),
    Case(DEFAULT, "I-091", mutation("I-091")),
]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where stores are unpacked and damaged."""
    return tmp_path_factory.mktemp("advice")


@pytest.mark.few(2)
@pytest.mark.parametrize("case", FAST, ids=str)
def test_the_first_command_mends(case: Case, work: Path) -> None:
    check(case, work)


@pytest.mark.slow
@pytest.mark.parametrize("case", slices.pick(CASES, "advice"), ids=str)
def test_the_first_commands_mend_any_damage(case: Case, work: Path) -> None:
    check(case, work)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("pattern", "name", "code"),
    [
        ("index", "index is missing", "I-101"),
        ("consumequeue/orders/0", "queue orders/0 is missing", "I-070"),
        ("consumequeue", "consumequeue is missing", "I-114"),
        ("checkpoint", "checkpoint is missing", "I-110"),
    ],
)
def test_a_part_that_is_gone_is_named(pattern: str, name: str, code: str, work: Path) -> None:
    """And one command that is pasted brings it back."""
    root = copied(original(DEFAULT, work), work)
    gone(pattern)(DEFAULT, root, root)
    page = run_here(["verify", str(root)]).stdout
    assert f"the {name}" in page or f" {name}" in page
    rows = json.loads(run_here(["verify", str(root), "--format", "json"]).stdout)
    (command,) = {row["repair"] for row in rows if row.get("code") == code}
    assert run_here([*command.split()[1:], "--yes"]).code == 0
    assert (root / pattern).exists()
    assert run_here(["verify", str(root)]).code == 0


def test_queues_without_a_file_are_missing_too(work: Path) -> None:
    """The first sentence says so, not that a unit is missing: their folders alone are nothing."""
    root = copied(original(DEFAULT, work), work)
    for file in root.glob("consumequeue/*/*/0*"):
        file.unlink()
    page = run_here(["verify", str(root)]).stdout
    assert "is missing, like all other queues" in page.splitlines()[0]
    assert "consumequeue is missing: 377 messages have no queue unit" in page
    assert "Damaged: abort: no message has a queue unit" in run_here(["inspect", str(root)]).stdout.splitlines()[0]


@pytest.mark.slow
def test_a_key_is_found_again_where_the_index_was_gone(work: Path) -> None:
    root = copied(original(DEFAULT, work), work)
    keys = [row["properties"].get("KEYS") for row in stores.messages(DEFAULT)]
    key = next(key for key in keys if key).split()[0]
    gone("index")(DEFAULT, root, root)
    config = stores.config(DEFAULT, root)
    assert "I-101" in {row["code"] for row in told(root, config)}
    followed(root, config)
    answer = run_here(["get", str(root), "--key", key, "--format", "ndjson", "-v"])
    assert answer.code == 0 and answer.stdout and "scan" not in answer.stderr


def test_what_no_repair_mends_has_its_reason(work: Path) -> None:
    """Under the commands, for each such code of the page."""
    root = copied(original(DEFAULT, work), work)
    mutations()["I-039"].mutate(root, Random("reason"))
    page = run_here(["verify", str(root)]).stdout
    assert catalogue()["I-039"].severity is Severity.ERROR
    assert "I-039 is beyond repair: the body is as it was stored" in page


def test_where_nothing_can_be_mended_no_command_leads_around(work: Path) -> None:
    """The only damage is the time of a message, and a start does no harm: two commands say the same."""
    case = next(case for case in recovery_cases.cases() if case["kind"] == "first_time_zero_last")
    root = recovery_cases.damaged(case, work)
    json_too = ["--format", "json", "--broker-version", case["version"]]
    applied = run_here(["recover", str(root), "--apply", "--yes", *json_too])
    asked = run_here(["recover", str(root), *json_too])
    assert [row["code"] for row in json.loads(applied.stdout)["beyond_repair"]] == ["I-027"]
    assert [row["why"] for row in json.loads(asked.stdout)["beyond_repair"]] == [why_unrepairable("I-027")]
    pages = [run_here([command, str(root)]).stdout for command in ("verify", "recover")]
    reason = why_unrepairable("I-027")
    assert all("--apply" not in page and reason in page for page in pages), pages
    assert "What now: no repair can mend it, but a broker start does not make it worse." in pages[0]
    assert pages[1].rstrip().endswith("Next: start the broker; its start makes nothing worse.")


@pytest.mark.slow
def test_three_thousand_findings_make_one_command(work: Path) -> None:
    """Each queue of the store is broken, and there is one command."""
    root = copied(original(DEFAULT, work), work)
    for file in root.glob("consumequeue/*/*/0*"):
        data = bytearray(file.read_bytes())
        data[:20] = bytes(20)
        file.write_bytes(data)
    lines = run_here(["verify", str(root)]).stdout.partition("What now:")[2].splitlines()
    commands = [line for line in lines if line.startswith("  mqstore") and "explain" not in line]
    assert len(commands) == 1
    assert run_here([*commands[0].partition("#")[0].split()[1:], "--yes"]).code == 0
    assert run_here(["verify", str(root)]).code == 0
