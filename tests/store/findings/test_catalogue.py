"""The catalogue is whole: each code of docs/invariants.md has its check, its texts and its mutation."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

import pytest

from mqstore.store.findings.catalogue import GROUPS, Severity, catalogue, of_group
from mqstore.store.findings.next_commands import MENDS
from mqstore.store.verify.register import CHECKS
from mqstore.store.verify.run import load_checks

from ..verify.mutations import mutations

RANGES = {
    "layout": ("001-015",),
    "commit_log": ("020-057",),
    "consume_queue": ("060-087",),
    "index": ("090-109",),
    "checkpoint": ("110-118",),
    "timer": ("120-137",),
    "config": ("140-159", "189-189"),
    "compaction": ("160-167", "170-171"),
    "start": ("180-188", "190-191"),
}
"""The codes by group: what a broker keeps, what mqstore adds (I-015, I-156 to I-159, I-189), and the next start."""
TOTAL = 155 + 15
NOT_MENDED = {"I-039", "I-155", "I-170", "I-187", "I-190", "I-191"}
"""What no command can put right: the message is as it was sent; a database only a backup has; epochs only another
member of the group, mostly; no plan is known; the broker that starts is another than before;
only other brokers have what the log has lost.
"""


def codes(group: str) -> list[str]:
    """The codes of a group as docs/invariants.md has them."""
    found = []
    for span in RANGES[group]:
        first, last = map(int, span.split("-"))
        found += [f"I-{number:03}" for number in range(first, last + 1)]
    return found


def test_the_list_is_that_of_the_specification() -> None:
    assert sum(len(codes(group)) for group in GROUPS) == TOTAL


def test_no_code_is_made_up() -> None:
    load_checks()
    known = {code for group in GROUPS for code in codes(group)}
    assert set(catalogue()) <= known
    assert set(CHECKS.codes) <= set(catalogue())
    assert set(mutations()) <= known


@pytest.mark.parametrize("group", GROUPS)
def test_every_code_is_explained_checked_and_broken(group: str) -> None:
    load_checks()
    told = [code for code, row in catalogue().items() if row.group == group]
    assert told == codes(group) == list(of_group(group))
    unchecked = {code for code in told if catalogue()[code].unchecked}
    assert set(told) - CHECKS.codes == unchecked
    assert set(told) - set(mutations()) == unchecked


@pytest.mark.parametrize("name", ["statement", "broker", "cause", "effect"])
def test_no_two_stories_are_alike(name: str) -> None:
    texts = Counter(_plain(getattr(told, name)) for told in catalogue().values())
    assert [text for text, times in texts.items() if times > 1] == []


def test_every_story_is_whole() -> None:
    for told in catalogue().values():
        for name in ("statement", "broker", "cause", "log", "effect"):
            assert getattr(told, name).strip(), f"{told.code}: no {name}"
        assert told.statement.endswith("."), told.code
        needless = told.severity <= Severity.WARNING or told.unchecked or told.code in NOT_MENDED
        assert told.repair or needless, f"{told.code}: no command"


def test_commands_are_ones_that_exist() -> None:
    by_hand = re.compile(r"(mqstore (recover|repair|salvage|verify|inspect|dump|get)|mv|cp|touch|df) ")
    for told in catalogue().values():
        if told.repair and told.repair not in MENDS:
            assert by_hand.match(told.repair), f"{told.code}: {told.repair}"
            names = {"store": "S", "topic": "T", "path": "P", "aside": "A", "salvaged": "N"}
            told.repair.format(**names, queue_id=0, position=0)


def test_links_are_public() -> None:
    for told in catalogue().values():
        for link in told.links:
            assert re.fullmatch(r"https://[a-z.]+/\S+", link), f"{told.code}: {link}"


def _plain(text: str) -> str:
    return re.sub(r"\W+", " ", text).lower().strip()


@pytest.mark.parametrize("group", [g if g == "commit_log" else pytest.param(g, marks=pytest.mark.slow) for g in GROUPS])
def test_the_checks_of_a_group_are_loaded_without_those_of_others(group: str) -> None:
    """In a process of its own: what was registered here stays so."""
    program = (
        "import sys\n"
        "from mqstore.store.verify import run\n"
        "from mqstore.store.verify.register import CHECKS\n"
        f"run.load_checks([{group!r}])\n"
        "print(*sorted(CHECKS.codes))\n"
        "print(*sys.modules)\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    codes, modules = (line.split() for line in done.stdout.splitlines())
    told = {code for code, row in catalogue().items() if row.group == group and not row.unchecked}
    assert told <= set(codes)
    assert "mqstore.store.recover.recovery" not in modules
