"""Options of a broker.conf that change a recovery: the real classes with each, and the simulation.

By source only, since the store classes alone do not show it: duplicationEnable,
enableControllerMode (spec 07), storeType (RocksDB queues are refused by `recover`).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mishaps import SECOND_LOG, Mishap
from tests.slices import SEED, share

from .conftest import Judge
from .random_cases import FEATURES, HALF_LIGHT, Cases, RandomCase, known_features

pytestmark = pytest.mark.interop

CASES_PER_SWITCH = 40
#: So many numbers are looked at for a store with the features that the switch is about.
NUMBERS = 4 * CASES_PER_SWITCH
FIRST_LOG = "00000000000000000000"


class Switch(NamedTuple):
    """Values of options, the stores they are tried on, and what belongs to them."""

    config: dict[str, str]
    features: tuple[str, ...] = ()
    first: tuple[Mishap, ...] = ()
    since: float = 4.3


TWO_PLACES = {"storePathCommitLog": f"{{store}}/commitlog,{{store}}/{SECOND_LOG}"}
SPREAD = Mishap("log", "other_directory", f"commitlog/{FIRST_LOG}")
LIGHT_ONES = ("light", HALF_LIGHT)
SWITCHES = {
    "several directories": Switch(TWO_PLACES, first=(SPREAD,), since=4.9),
    "no CRC": Switch({"checkCRCOnRecover": "false"}),
    "no index": Switch({"messageIndexEnable": "false"}),
    "index safe": Switch({"messageIndexSafe": "true"}),
    "no index, index safe": Switch({"messageIndexEnable": "false", "messageIndexSafe": "true"}),
    "property CRC": Switch({"forceVerifyPropCRC": "true"}, since=5.3),
    "no ext": Switch({"enableConsumeQueueExt": "false"}, ("ext",)),
    "ext": Switch({"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "400"}),
    "no timer": Switch({"timerWheelEnable": "false"}, ("timer",), since=5),
    "no LMQs": Switch({"enableLmq": "false", "enableMultiDispatch": "false"}, LIGHT_ONES, since=4.9),
    "LMQs with numbers": Switch({"enableLmq": "false"}, LIGHT_ONES, since=4.9),
    "no further queues": Switch({"enableMultiDispatch": "false"}, LIGHT_ONES, since=4.9),
    "few files": Switch({"commitLogRecoverMaxNum": "2"}, since=5.4),
}


def switched(judge: Judge, name: str, count: int, work: Path) -> list[str]:
    """Compare cases under a switch; what ends otherwise."""
    switch, cases, done = SWITCHES[name], Cases(judge, work), 0
    wrong = []
    for number in range(NUMBERS):
        if done == count:
            break
        case = cases[number]
        if switch.features and case.store.feature not in switch.features:
            continue
        done += 1
        under = case.under(*switch.first, **switch.config)
        if found := under.judged(judge).differences:
            wrong.append(f"{number}: {_small(under, judge, len(switch.first))}: {'; '.join(found)}")
    assert done
    return wrong


def _small(case: RandomCase, judge: Judge, first: int) -> RandomCase:
    """Without the mishaps that are not needed; those of the configuration stay."""
    for pair in case.mishaps[first:]:
        fewer = case.only([other for other in case.mishaps if other != pair])
        if fewer.judged(judge).differences:
            return _small(fewer, judge, first)
    return case


def known(name: str, version: str) -> bool:
    """Whether the version has the option, and the judge makes stores for it."""
    switch = SWITCHES[name]
    newer = float(version.rpartition(".")[0]) >= switch.since
    return newer and set(switch.features) <= set(known_features(version))


def test_without_crc(judge: Judge, tmp_path: Path) -> None:
    assert not switched(judge, "no CRC", 3, tmp_path), f"seed {SEED}"


@pytest.mark.slow
@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch(judge: Judge, name: str, tmp_path: Path) -> None:
    if not known(name, judge.version):
        assert SWITCHES[name].since > float(judge.version.rpartition(".")[0])
        return
    wrong = switched(judge, name, share(CASES_PER_SWITCH), tmp_path)
    assert not wrong, f"seed {SEED}, {name}:\n" + "\n".join(wrong)


def test_every_switch_has_stores() -> None:
    assert {name for switch in SWITCHES.values() for name in switch.features} <= FEATURES.keys()
