"""Values in config/ that no broker reads cost no entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqstore.store.broker.topics import loads
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.repair.parts import RepairPart, chosen

from ... import stores
from .test_repair import examined

pytestmark = pytest.mark.long

CONFIG = chosen([RepairPart.CONFIG], ())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return stores.unpack("5.3.3-clean", tmp_path)


def both_with(root: Path, name: str, change: tuple[str, str]) -> Any:
    """A file of config/, and its .bak, with another text in the first of such places. Returns what it had."""
    path = root / "config" / name
    text = path.read_text()
    assert change[0] in text
    for one in (path, path.with_name(f"{name}.bak")):
        one.write_text(text.replace(*change, 1))
    return loads(text)


def planned(root: Path) -> dict[str, tuple[str, Any]]:
    """By file what the plan says of it, and its new content."""
    edits = examined(root, BrokerConfig({}), CONFIG).plan.edits
    return {Path(edit.path).name: (edit.reason, loads(bytes(edit.pieces[0][1]).decode())) for edit in edits}


@pytest.mark.parametrize("counter", ['"x"', "null"])
def test_a_version_that_no_broker_reads_costs_no_entry(counter: str, root: Path) -> None:
    change = ('"counter":', f'"counter":{counter},"x":')
    whole = {name: both_with(root, name, change) for name in ("topics.json", "subscriptionGroup.json")}
    plan = planned(root)
    for name, known in whole.items():
        _, content = plan[name]
        assert "counter" not in content.pop("dataVersion") and known.pop("dataVersion")
        assert content == known


def test_a_number_that_no_broker_reads_costs_no_entry(root: Path) -> None:
    """That of a topic is made anew, that of a group is taken out, an offset brought inside its queue."""
    topics = both_with(root, "topics.json", ('"readQueueNums":2,', '"readQueueNums":2147483648,'))
    groups = both_with(root, "subscriptionGroup.json", ('"retryMaxTimes":16', '"retryMaxTimes":2147483648'))
    offsets = '{"offsetTable":{"orders@a":{0:1,1:9223372036854775808,2147483648:2},"gone@a":{0:-9223372036854775809}}}'
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (root / "config" / name).write_text(offsets)
    plan = planned(root)
    reason, content = plan["topics.json"]
    assert content == topics and reason.endswith(": readQueueNums 2147483648 -> 2")
    reason, content = plan["subscriptionGroup.json"]
    lost = next(group for group, entry in content["subscriptionGroupTable"].items() if "retryMaxTimes" not in entry)
    assert reason.endswith(f"{lost}: retryMaxTimes 2147483648 taken out")
    assert groups["subscriptionGroupTable"].pop(lost) == content["subscriptionGroupTable"].pop(lost) | {
        "retryMaxTimes": 16
    }
    assert groups["subscriptionGroupTable"].items() <= content["subscriptionGroupTable"].items()
    reason, content = plan["consumerOffset.json"]
    assert content["offsetTable"].items() > {"orders@a": {0: 1, 1: 25}, "gone@a": {}}.items()
    assert "orders@a: 2147483648 2 taken out" in reason


def test_what_no_broker_reads_inside_of_a_value_costs_no_entry(root: Path) -> None:
    """A list is taken out as a whole, of an object what is wrong in it."""
    text = '{"table":{"orders@a":{0:{"o":[5,1],"oc":{5:1,6:"x"}},1:{"o":[5,null],"cm":3}}}}'
    for name in ("consumerOrderInfo.json", "consumerOrderInfo.json.bak"):
        (root / "config" / name).write_text(text)
    reason, content = planned(root)["consumerOrderInfo.json"]
    assert content["table"] == {"orders@a": {0: {"o": [5, 1], "oc": {5: 1}}, 1: {"cm": 3}}}
    assert "orders@a: 6 x taken out" in reason and "orders@a: o [5, None] taken out" in reason


def test_an_offset_that_no_broker_reads_is_that_of_the_bak(root: Path) -> None:
    path = root / "config" / "consumerOffset.json"
    path.write_text('{"offsetTable":{"orders@a":{0:9223372036854775808,1:5}}}')
    path.with_name("consumerOffset.json.bak").write_text('{"offsetTable":{"orders@a":{0:3,1:4}}}')
    assert planned(root)["consumerOffset.json"][1]["offsetTable"]["orders@a"] == {0: 3, 1: 5}
