"""What is lost, one by one: a message is a line, whatever its names are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mqstore.cli.loss_text import cut_lines, lost_lines, replica_lines, slave_lines, timer_lines
from mqstore.cli.options import Common
from mqstore.cli.plan_text import ROWS
from mqstore.cli.terminal import page_of
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.plan.bring_back import Brought
from mqstore.store.recover.predict import DeliveredAgain

from .hostile import TEXTS

if TYPE_CHECKING:
    from mqstore.store.recover.recovery import Recovery

UTC = Common(utc=True)
ROW = {
    "topic": "t",
    "queue_id": 3,
    "queue_offset": 7,
    "size": 100,
    "position": 4096,
    "store_timestamp": 0,
    "not_before": None,
    "not_after": None,
    "unique_key": None,
    "keys": [],
    "key_hashes": [],
}


def found(*rows: dict[str, Any], count: int = 0, **plan: Any) -> Recovery:
    """A recovery that knows nothing else."""
    parts = {"lost": SimpleNamespace(messages=count), "cut": (), "brought": None, "policy": "keep"} | plan
    options = SimpleNamespace(policy=parts["policy"])
    layout = SimpleNamespace(broker_config=BrokerConfig(), root=Path("s"))
    known = {"plan": SimpleNamespace(**parts), "options": options, "layout": layout}
    return cast("Recovery", SimpleNamespace(named={"plan": list(rows)}, **known))


def line(**more: Any) -> str:
    _, _, only = lost_lines(found(ROW | more), UTC)
    return only


def test_a_message() -> None:
    assert line() == "  t/3 at 7  1970-01-01T00:00:00.000Z  position 4,096, 100 bytes"
    assert line(topic=None, queue_id=None, size=None).startswith("  ?  1970")
    assert line(unique_key="K", keys=["a", "b"], key_hashes=[1, 2]).endswith("  id K, keys a b, key hashes 1, 2")


@pytest.mark.parametrize(
    ("first", "last", "text"),
    [
        (None, None, "time unknown"),
        (None, 0, "before 1970-01-01T00:00:00.000Z"),
        (0, None, "1970-01-01T00:00:00.000Z or later"),
        (0, 1, "1970-01-01T00:00:00.000Z … 1970-01-01T00:00:00.001Z"),
        (-(2**63), 2**63 - 1, f"{-(2**63)} … {2**63 - 1}"),
    ],
)
def test_between_which_times_it_was(first: int | None, last: int | None, text: str) -> None:
    """As far as it is known; a number that is no time is that number."""
    assert f"  {text}  position" in line(store_timestamp=None, not_before=first, not_after=last)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", ["topic", "unique_key", "keys"])
def test_names_make_no_lines_of_their_own(name: str, text: str) -> None:
    assert page_of([line(**{name: [text] if name == "keys" else text})]).isprintable()


def test_many_keys_are_cut() -> None:
    assert len(line(keys=["k" * 100] * 100)) < 160


@pytest.mark.parametrize(("verbose", "count", "shown"), [(False, 20, ROWS), (True, 20, 20), (True, 500, 20)])
def test_a_long_list_says_how_much_there_is(verbose: bool, count: int, shown: int) -> None:
    """Also of those that nobody can name."""
    lines = lost_lines(found(*[ROW] * 20, count=count), Common(utc=True, verbose=verbose))
    assert sum("position" in each for each in lines) == shown
    more = [each for each in lines if "more (" in each]
    assert more == ([] if shown == count else [more[0]])
    if more:
        assert f"{count - shown} more ({'JSON has' if verbose else '--verbose shows'}" in more[0]


def test_nothing_is_lost() -> None:
    assert lost_lines(found(), UTC) == cut_lines(found(), None) == replica_lines(found(), None) == []
    assert lost_lines(cast("Recovery", SimpleNamespace(named={}, plan=None)), UTC) == []


@pytest.mark.parametrize("text", TEXTS)
def test_messages_that_lose_properties(text: str) -> None:
    one = {"topic": text, "queue_id": 0, "queue_offset": 1, "position": 4096, "lost_bytes": 1, "properties": (text,)}
    _, title, first, second = cut_lines(
        found(cut=(SimpleNamespace(**one), SimpleNamespace(**one | {"topic": "t", "properties": ()}))), None
    )
    assert title.startswith("A torn write has cut off properties")
    assert page_of([first]).isprintable()
    assert second == "  t/0 at 1  position 4,096  1 byte of properties lost, left: none"


def test_what_a_replica_gives_and_lacks() -> None:
    brought = {"replica": "/r", "parts": (), "lacks": (), "goes_on": False, "confirmed": None, "earlier_bytes": 0}
    brought |= {"parted_at": None, "ends_at": None}
    assert replica_lines(found(brought=SimpleNamespace(**brought)), None) == ["", "From the replica /r:", "  nothing"]
    brought |= {"parts": (SimpleNamespace(size=1, position=4096, records=1),), "goes_on": True, "earlier_bytes": 2048}
    brought |= {"lacks": (SimpleNamespace(size=2, position=8192, reason="torn"),)}
    lines = replica_lines(found(brought=SimpleNamespace(**brought)), None)
    assert lines[2] == "  1 byte at 4,096: 1 record"
    assert lines[4] == "  2 bytes at 8,192: torn"
    assert "continues behind the end" in lines[5] and "2,048 bytes in front" in lines[6]
    lines = replica_lines(found(brought=SimpleNamespace(**brought | {"confirmed": 4300})), None)
    assert "Nothing of that is taken" in lines[5] and "confirmPhyOffset 4,300" in lines[6]
    brought |= {"parted_at": 4096}
    lines = replica_lines(found(brought=SimpleNamespace(**brought)), None)
    assert "From 4,096 on the replica has other messages" in lines[6]
    lines = replica_lines(found(brought=SimpleNamespace(**brought | {"parted_at": None, "ends_at": 4096})), None)
    assert "The replica ends at 4,096, before this log." in lines[6]


def test_where_a_slave_is_cut_to_follow_its_master() -> None:
    brought = Brought("/r", parted_at=4096)
    for end, text in (
        (4096, "This log is cut at 4,096: from there on "),
        (100, "cut at 100: from 4,096 on it has other messages than /r"),
    ):
        assert text in replica_lines(found(brought=brought, policy="broker", log_end=end), None)[1]
    ahead = Brought("/r", parted_at=4096, ends_at=4096)
    assert replica_lines(found(brought=ahead, policy="broker", log_end=4096), None)[1].endswith("/r ends there.")
    brought.parted_at = None
    assert replica_lines(found(brought=brought, policy="broker"), None)[1].endswith("it changes nothing.")


FILL = SimpleNamespace(lost=[], fillers=[])
CHANGES: list[dict[str, Any]] = [
    {"fills": [FILL, SimpleNamespace(lost=[1], fillers=[])]},
    {"fills": [SimpleNamespace(lost=[], fillers=[(0, 91)])]},
    {"cut": ["a record"]},
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("role", "policy"), [("SLAVE", "keep"), ("SLAVE", "broker"), ("", "keep")])
def test_what_a_plan_does_to_the_log_of_a_slave(role: str, policy: str, change: dict[str, Any]) -> None:
    """What helps is told: a copy of the master, or the master itself."""
    told = (role, policy) == ("SLAVE", "keep")
    for made, lost in ((change, 0), ({}, 5), (change, 5), ({}, 0)):
        plan = SimpleNamespace(**{"fills": [FILL], "cut": [], "resent": 0} | made)
        start = SimpleNamespace(lost=SimpleNamespace(messages=lost), log_end=86598)
        layout = SimpleNamespace(broker_config=BrokerConfig({"brokerRole": role}), follows_master=bool(role))
        options = SimpleNamespace(policy=policy)
        found = cast("Recovery", SimpleNamespace(plan=plan, prediction=start, layout=layout, options=options))
        text = "".join(slave_lines(found))
        assert ("bring the records back" in text) == (told and bool(made))
        assert ("the same up to 86,598" in text) == (told and bool(lost))


def prediction(items: int, delayed_again: int = 0, asked_again: int = 0, **timers: Any) -> Recovery:
    made = SimpleNamespace(**timers) if timers else None
    again = DeliveredAgain(delayed_again, asked_again=asked_again)
    start = SimpleNamespace(timers=made, index_items_lost=items, again=again)
    return cast("Recovery", SimpleNamespace(prediction=start))


def test_timers_and_items_of_the_index() -> None:
    """Nothing is said of what is harmless."""
    assert timer_lines(prediction(0)) == timer_lines(prediction(0, harmless=True)) == []
    assert "1,000 index items would be lost" in timer_lines(prediction(1000))[1]
    assert timer_lines(prediction(0, 1))[1].startswith("1 delayed message would be delivered again: delayOffset.json")
    assert timer_lines(prediction(0, asked_again=2))[1].startswith("2 committed transactions would be asked about")
    all_of_it = {"pending": 2000, "never_fired": 1, "fired_twice": 2, "loops": 1, "stuck_at": 0, "read_timestamp": 1}
    more: dict[str, Any] = {"harmless": False, "bugs": ("B1", "B2"), "fires_from": "later", **all_of_it}
    lines = timer_lines(prediction(0, **more, if_elected=""))
    assert lines[1] == "Timed messages, 2,000 of them waiting (B1, B2):"
    assert [each.split(maxsplit=1) for each in lines[2:5]] == [
        ["1", "would never fire"],
        ["2", "would fire twice"],
        ["1", "tick would lead to itself, and stop the timer"],
    ]
    elected = timer_lines(prediction(0, **more, if_elected=", if it is elected"))
    assert elected[3].strip() == "up to 2  would fire twice, if it is elected"
    assert "behind queue offset 0" in lines[5] and lines[6].endswith("would fire before later")
