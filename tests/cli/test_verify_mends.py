"""The command that `verify` names for a finding mends it: damage, that command, and the code is gone."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from random import Random

import pytest

from mqstore.store.findings.catalogue import Severity, catalogue
from mqstore.store.findings.next_commands import command_for

from .. import slices
from ..store.verify.mutations import Mutation, copied, mutations, original, verified
from ..stores import config_set
from .datadriven import run_here

LOOKS = ("mqstore get", "mqstore dump", "mqstore verify", "mqstore inspect", "mqstore salvage", "df")
"""These show what a finding is about, or save what is left: nothing mends it in place."""
NOT_ALWAYS = {
    "I-012": "another owner needs to be root",
    "I-037": "only a newer broker can read such records; the plan tells what an older one cuts",
    "I-055": "what was torn is gone; where queue and index agree with what is left it stays",
    "I-079": "an ext unit that a queue does not need any more stays where it is",
    "I-091": "a file that only had another name is missing then, which is a finding of its own",
    "I-153": "tiered storage is not changed",
    "I-161": "records of the compaction log that are lost stay lost",
    "I-171": "there is not always a copy",
}


def _mended_by_command() -> list[Mutation]:
    """Mutations of the codes whose command is to mend them."""
    chosen = []
    for code, mutation in mutations().items():
        command = catalogue()[code].repair
        if command and not command.startswith(LOOKS) and code not in NOT_ALWAYS:
            chosen.append(mutation)
    return chosen


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where stores are unpacked and damaged."""
    return tmp_path_factory.mktemp("mends")


def _left(mutation: Mutation, work: Path) -> list[str]:
    """What verify still says of the code after the commands that it named for it."""
    name = mutation.stores[0]
    store = copied(original(name, work), work)
    mutation.mutate(store, Random(f"mend {mutation.code} 0"))
    found = [f for f in verified(name, store).findings if f.code == mutation.code]
    commands = list(dict.fromkeys(str(command_for(f, store) or "") for f in found))
    if not any(command and not command.startswith(LOOKS) for command in commands):
        return []  # this finding is one that nothing mends
    for command in commands:
        _carry_out(command, name, store)
    after = verified(name, store).findings
    serious = (f for f in after if f.code == mutation.code and f.severity > Severity.INFO)
    return [f"{f.severity.label}: {f.message}" for f in serious]


def _carry_out(command: str, name: str, store: Path) -> None:
    words = shlex.split(command.replace("/somewhere/else", shlex.quote(str(store.parent))))
    if words[:1] == ["mqstore"]:
        options = [word for pair in config_set(name, store) for word in ("--set", pair)]
        run_here([*words[1:], "--yes", "--no-progress", *options])
    elif "&&" in words:
        at = words.index("&&")
        _carry_out(shlex.join(words[:at]), name, store)
        _carry_out(shlex.join(words[at + 1 :]), name, store)
    elif words:
        subprocess.run(words, check=True, capture_output=True)


@pytest.mark.few(1)
@pytest.mark.parametrize("code", ["I-009", "I-101"])
def test_the_command_mends(code: str, work: Path) -> None:
    assert _left(mutations()[code], work) == []


@pytest.mark.slow
@pytest.mark.parametrize("mutation", slices.pick(_mended_by_command(), "mends"), ids=str)
def test_the_command_of_each_code_mends(mutation: Mutation, work: Path) -> None:
    assert _left(mutation, work) == []
