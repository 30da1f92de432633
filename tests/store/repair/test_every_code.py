"""No code without an answer: a repair mends what it names, or there is a line that says why none does."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import InvalidInput, Refused, UnreadableRange, Unsupported
from mqstore.store.findings.catalogue import Severity, catalogue
from mqstore.store.repair.parts import CHOICES, Choice, part_of_code
from mqstore.store.repair.recheck import unrepairable_texts
from mqstore.store.repair.repair import analyze
from mqstore.store.session.apply import apply
from mqstore.store.verify.start import GROUP

from ... import slices, stores
from ..verify.mutations import copied, mutations, original
from .mended import told
from .test_repair import NOW_MS

WAYS = 6
CODES = tuple(code for code in mutations() if catalogue()[code].severity > Severity.INFO)


def codes(*numbers: int) -> frozenset[str]:
    return frozenset(f"I-{number:03}" for number in numbers)


NEVER = codes(
    *(6, 8, 10, 11, 12, 13, 14, 15, 27, 28, 33, 34, 37, 38, 39, 44, 45, 46, 47, 48, 49, 50, 52, 57),
    *(147, 148, 151, 153, 157, 158, 159, 170, 171),
)
"""No repair mends these: each has a line that says why."""
SOMETIMES = codes(
    *(2, 23, 25, 26, 31, 35, 55, 62, 63, 64, 65, 66, 67, 70, 75, 76, 78, 81, 84, 114, 117, 123, 126, 128, 129),
    *(131, 133, 137, 140, 150, 155, 156, 160, 161, 162, 163),
)
"""Mended where the store proves what belongs there, told with a line where it does not."""
PROVEN = dict.fromkeys(SOMETIMES - {"I-076"}, 0) | {"I-078": 3, "I-150": 2, "I-155": 4}
"""Of those a way, by its number with the default seed, in which the store proves what belongs there."""
BY_HAND = frozenset({"I-180", "I-181", "I-182", "I-183", "I-188", "I-190", "I-191"})
"""What a start loses, though no file that a repair writes is at fault: the lines about a start."""
_BY_ALL = ("layout", "commit_log")
"""Groups that --all mends, as `recover` does."""


def test_no_code_without_an_answer() -> None:
    """A named repair mends it, or a line says why none does; no line without need."""
    lines = set(unrepairable_texts()) - {"OTHER"}
    assert lines == NEVER | SOMETIMES | BY_HAND
    for code, told_ in catalogue().items():
        wrong = told_.severity > Severity.INFO and not told_.unchecked
        if told_.group == GROUP:
            _has_command(code)
            continue
        if code in NEVER:
            with pytest.raises(InvalidInput, match="no repair mends"):
                part_of_code(code)
        elif wrong and told_.group not in _BY_ALL:
            assert part_of_code(code)
        assert not wrong or code in CODES, f"{code}: nothing shows what a repair does"


def _has_command(code: str) -> None:
    """What a start does follows from other findings: a part mends them, or another command.

    tests/verdict shows what becomes of it.
    """
    cure = catalogue()[code].repair
    assert code in BY_HAND or code not in unrepairable_texts()
    if cure in CHOICES:
        assert part_of_code(code) == cure
        return
    with pytest.raises(InvalidInput, match="no repair mends") as refused:
        part_of_code(code)
    command = "mqstore recover" if cure == "recover" else f"mqstore explain {code}"
    assert refused.value.hint is not None and command in refused.value.hint


def test_what_a_line_is_for() -> None:
    """A line of a finding that is one at all."""
    for code in NEVER | SOMETIMES:
        assert catalogue()[code].severity > Severity.INFO, code


def remains(code: str, number: int, work: Path, seed: int = slices.SEED) -> str:
    """Damage that breaks this invariant, and all that a repair does: what is left of it, and how."""
    mutation = mutations()[code]
    name = mutation.stores[number % len(mutation.stores)]
    whole = original(name, work)
    root = copied(whole, work)
    did = mutation.mutate(root, Random(f"{seed} every code {code} {number}"))
    before = told(name, whole).get(code, 0)
    config = BrokerConfig({key: str(value) for key, value in stores.config(name, root).items()})
    try:
        plan = analyze(Layout.open(root, config), Choice(), None, NOW_MS).plan
    except (Refused, Unsupported, UnreadableRange) as error:
        return f"{name}: {did}: {error}"
    apply(Layout.open(root, config), plan, lambda: plan, Files(), command="repair")
    after = told(name, root).get(code, 0)
    return f"{name}: {did}: {after} findings, {before} before" if after > before else ""


@pytest.mark.slow
@pytest.mark.parametrize("code", [code for code in CODES if catalogue()[code].group != GROUP])
def test_all_that_can_be_mended_is(code: str, tmp_path: Path) -> None:
    """A repair of all leaves nothing of the damage, but of those codes that have a line."""
    for number in range(slices.share(WAYS)):
        left = remains(code, number, tmp_path)
        assert not left or code in NEVER | SOMETIMES, left


@pytest.mark.slow
@pytest.mark.parametrize("code", sorted(PROVEN))
def test_what_the_store_proves_is_mended(code: str, tmp_path: Path) -> None:
    """A code with a line is mended all the same where it can be."""
    left = remains(code, PROVEN[code], tmp_path, slices.DEFAULT_SEED)
    assert not left, left
