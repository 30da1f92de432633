"""Plans over measured damage: applied, every message below the log end can be read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqstore.formats.consume_queue import UNIT, UNIT_BYTES
from mqstore.store.audit.messages import Readability, scan_messages
from mqstore.store.broker.dispatch_record import Dispatching
from mqstore.store.broker.profiles import VERSIONS
from mqstore.store.broker.snapshot import can_have_files
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.log.commit_log import Batch
from mqstore.store.plan.observer import RecoveryOptions
from mqstore.store.queues.references import commit_log_of
from mqstore.store.recover.predict import Prediction
from mqstore.store.recover.recovery import Recovery, analyze, replan
from mqstore.store.search.store import StoreReader
from mqstore.store.session.apply import apply
from mqstore.store.start.outcome import Outcome
from mqstore.store.verify.run import verify

from ... import recovery_cases, stores
from ...slices import pick
from ..recover.recovered import changes_of_starts, started


class Unflushed(Files):
    """Leaves flushing to the system: thousands of stores."""

    def sync_directory(self, path: Path) -> None:
        self.step("sync_directory", path)


def faults(case: dict[str, Any], work: Path) -> list[str]:
    """What is wrong with a store once its plan is applied."""
    root = recovery_cases.damaged(case, work)
    config = recovery_cases.config_of(case, root)
    found = analyze(Layout.open(root, config), case["version"])
    plan = found.plan
    if plan is None:
        return [] if found.refusal else ["no plan and no reason"]
    if not found.nothing_to_do:
        layout = Layout.open(root, config)
        apply(layout, plan, lambda: replan(layout, case["version"]), Unflushed())
    wrong = [f"left to do: {e}" for e in replan(Layout.open(root, config), case["version"]).edits]
    wrong += changes_of_starts(root, config, plan, _versions(case, found))
    start = started(root, config, case["version"])
    kept = [(file.start, file.start + file.wrote) for file in start.log.files]
    after = Readability(kept, start.queues, can_have_files)
    log = commit_log_of(Layout.open(root, config))
    scan_messages(log, [after], Dispatching(multi_dispatch=_dispatches_to_many(start)))
    # a record whose own queue offset was changed has its unit, at another place than it says
    changed = ("queue_offset", "offset_", "flip_queueOffset", "flip_queueId")
    astray = 1 if case["kind"].startswith(changed) else 0
    if after.lost.messages or after.invisible.messages > astray:
        wrong.append(f"{after.lost.messages} lost, {after.invisible.messages} without a unit")
    if found.messages - after.total != plan.lost.messages:
        wrong.append(f"{found.messages} before, {after.total} after, {plan.lost.messages} told")
    told = found.prediction
    exact = told.starts and told.case.label != "ghost-record"
    if exact and plan.lost.messages > told.lost.messages and plan.log_end != _end_after_two(case, told, work):
        wrong.append(f"{plan.lost.messages} lost, by a broker {told.lost.messages}")
    return wrong


def _end_after_two(case: dict[str, Any], told: Prediction, work: Path) -> int:
    """Where the log ends for the start behind this one, after a clean exit.

    It may begin before this one, which an empty file at the end or the checkpoint leads past damage.
    """
    root = recovery_cases.damaged(case, work)
    gone = [change.path for change in told.files if change.change == "removed"]
    for path in ("abort", *gone):
        (root / path).unlink(missing_ok=True)
    return started(root, recovery_cases.config_of(case, root), case["version"]).log_end


def _dispatches_to_many(start: Outcome) -> bool:
    return start.profile.dispatch.multi_dispatch and start.switches.multi_dispatch


def _versions(case: dict[str, Any], found: Recovery) -> list[str]:
    """Versions whose start must change nothing.

    4.3 does not know the IPv6 hosts of the newer stores, nor does a flag mean them to it that others
    take at its word; nobody before 5.1 knows version 2 records or batch queues. Damage that the
    broker's recovery does not meet stays, in half messages, too, and other versions may begin before
    it.
    """
    own = case["version"][:3]
    checked = (item for item in commit_log_of(found.layout).scan() if isinstance(item, Batch))
    damaged = any(b.body_crc_ok is not None and not b.body_crc_ok.all() for b in checked)
    if damaged or found.damaged_bytes or (own == "4.3" and "_v6_" in case["kind"]):
        return [own]
    if case.get("feature") in ("v2ipv6", "batch"):
        return [version for version in VERSIONS if version >= own]
    return [version for version in VERSIONS if version != "4.3" or own == "4.3"]


@pytest.mark.slow
def test_some_kinds_of_damage(tmp_path: Path) -> None:
    failed = {}
    for case in (*recovery_cases.cases()[::60], *recovery_cases.feature_cases()[::150]):
        found = faults(case, tmp_path)
        if found:
            failed[case["case"]] = found
    assert not failed


@pytest.mark.slow
def test_all_measured_damage(tmp_path: Path) -> None:
    failed = {}
    every = (*recovery_cases.all_cases(), *recovery_cases.all_feature_cases())
    for case in pick(every, "recovery plans"):
        found = faults(case, tmp_path)
        if found:
            failed[case["case"]] = found
    assert not failed


@pytest.mark.parametrize("number", [0, 14])
@pytest.mark.parametrize("unit", [(1 << 40, 100), (0, 0)])
def test_a_unit_of_an_expired_message_that_would_end_its_queue(
    unit: tuple[int, int], number: int, tmp_path: Path
) -> None:
    """Consumers read what lies behind it: the next start has nothing to do."""
    root = stores.unpack("5.1.4-killed", tmp_path)
    min((root / "commitlog").iterdir()).unlink()
    [path] = (root / "consumequeue/orders/3").iterdir()
    written = UNIT.build({"physical_offset": unit[0], "size": unit[1], "tags_code": 0})
    data = bytearray(path.read_bytes())
    data[number * UNIT_BYTES : (number + 1) * UNIT_BYTES] = written
    path.write_bytes(data)
    config = BrokerConfig(stores.config("5.1.4-killed", root))
    layout = Layout.open(root, config)
    plan = analyze(layout, "5.1.4").plan
    assert plan is not None
    apply(layout, plan, lambda: replan(Layout.open(root, config), "5.1.4", RecoveryOptions()), Files())
    with StoreReader(root, config) as store:
        assert not {"I-061", "I-067", "I-071", "I-182"} & {found.code for found in verify(store).findings}
