"""What came back from a replica, and records without properties, in the hands of real brokers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.plan.plan import Plan
from mqstore.store.recover.recovery import replan
from mqstore.store.session.apply import apply
from tests import recovery_cases, stores
from tests.damage import ALL_KINDS, Victim, damage
from tests.recovery_cases import CONFIG
from tests.slices import pick, rng
from tests.store.plan.test_torn_records import tear

from .conftest import Judge
from .served import loaded
from .test_keep import SIZES, changed, served, some_case

pytestmark = pytest.mark.interop

MADE_MS = 1_795_300_000_000


def recovered(root: Path, config: BrokerConfig, version: str, replica: Path | str = "") -> Plan:
    options = RecoveryOptions(Policy.KEEP, MADE_MS, (version.rpartition(".")[0],), replica=str(replica))

    def again() -> Plan:
        return replan(Layout.open(root, config), version, options)

    plan = again()
    apply(Layout.open(root, config), plan, again, Files())
    return plan


def test_messages_without_properties_are_served(judge: Judge, tmp_path: Path) -> None:
    """The broker changes nothing at its start, and serves every message, the torn one too."""
    base = recovery_cases.base(some_case(judge.version)["base"], tmp_path)
    root, whole = tmp_path / "store", tmp_path / "whole"
    shutil.copytree(base, root)
    shutil.copytree(base, whole)
    truth = served(loaded(judge, whole, SIZES, {"do": "get"}, files="none")["steps"][0])
    position, _ = tear(root)
    plan = recovered(root, CONFIG, judge.version)
    assert [row.position for row in plan.cut] == [position] and plan.lost.messages == 0
    start = tmp_path / "start"
    shutil.copytree(root, start)
    answer = loaded(judge, start, SIZES, start=False)
    assert changed(answer) == [] and answer["after_load"]["max_offset"] == plan.log_end
    found = served(loaded(judge, root, SIZES, {"do": "get"}, files="none")["steps"][0])
    assert {place: found.get(place) for place in truth} == truth
    assert position in {at for at, _ in found.values()}


@pytest.mark.slow
def test_logs_brought_back(judge: Judge, tmp_path: Path) -> None:
    """A damaged master or slave with the help of the other serves what it served before, as far as
    this version has left such a pair.
    """
    line = judge.version
    sides = ("ha-master", "ha-slave") if f"{line}-ha-master" in stores.ALL else ()
    for name, peer in zip(sides, reversed(sides), strict=True):
        whole = stores.unpack(f"{line}-{name}", tmp_path / name)
        replica = stores.unpack(f"{line}-{peer}", tmp_path / name)
        (whole / "timerwheel").unlink(missing_ok=True)
        config = BrokerConfig({k: v for k, v in stores.config(f"{line}-{name}", whole).items() if "FileSize" in k})
        sizes = dict(config.items())
        copy = Path(shutil.copytree(whole, tmp_path / "copy"))
        truth = served(loaded(judge, copy, sizes, {"do": "get"}, files="none")["steps"][0])
        kinds = [kind for kind in ALL_KINDS if kind not in ("flip_bit", "stale_record")]
        for kind in pick(kinds, f"replica {line}"):
            root = Path(shutil.copytree(whole, tmp_path / "store"))
            victim = Victim.of(f"{line}-{name}", whole).moved(root)
            spans = [s for s in victim.spans if s.path.name == victim.spans[0].path.name]
            damage(Victim(root, tuple(spans[2:-2])), rng(f"{line} {kind}"), kind=kind)
            if not spans[0].path.exists():
                shutil.rmtree(root)
                continue
            plan = recovered(root, config, line, replica)
            assert plan.lost.messages == 0, kind
            found = served(loaded(judge, root, sizes, {"do": "get"}, files="none")["steps"][0])
            missing = {place for place in truth if found.get(place) != truth[place]}
            assert not missing, f"{name} {kind}: {sorted(missing)[:3]}"
            shutil.rmtree(root)
        shutil.rmtree(copy)
