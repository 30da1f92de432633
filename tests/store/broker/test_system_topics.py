"""Topics and groups of a broker's own, and how long its delay levels wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.broker.system_topics import (
    delay_ms,
    format_levels,
    group_of_topic,
    is_system_group,
    is_system_topic,
    parse_levels,
)
from mqstore.store.errors import InvalidInput


def test_delay_levels_of_a_configuration() -> None:
    assert parse_levels("1s 2m 3h 4d") == (1_000, 120_000, 10_800_000, 345_600_000)
    assert delay_ms("2", (5,)) == 5
    assert delay_ms("٣", parse_levels()) == 10_000, "digits of any script, as Java"
    assert delay_ms("3 ", parse_levels()) is None


@pytest.mark.parametrize("text", ["1", "1x", "s", "-1s", "1.5s", "1s,5s", "1S", "1s5s", "9" * 11 + "s"])
def test_levels_that_no_broker_reads_are_named(text: str) -> None:
    with pytest.raises(InvalidInput, match="messageDelayLevel"):
        parse_levels(f"1s {text}")


@pytest.mark.parametrize("text", ["", " ", "1s  5s", "1s\t5s", " 1s"])
def test_levels_are_split_at_single_blanks(text: str) -> None:
    with pytest.raises(InvalidInput, match="messageDelayLevel"):
        parse_levels(text)
    assert parse_levels("1s 5s  ") == (1_000, 5_000), "blanks at the end count for nothing"


@given(st.lists(st.integers(0, 10**9), min_size=1).map(lambda found: tuple(1000 * seconds for seconds in found)))
def test_levels_come_back_from_their_text(levels: tuple[int, ...]) -> None:
    assert parse_levels(format_levels(levels)) == levels


@given(st.integers(-(10**12), 10**12), st.lists(st.integers(1, 1 << 40), min_size=1, max_size=20))
def test_a_level_above_the_highest_counts_as_the_highest(level: int, waits: list[int]) -> None:
    """None below 1; a number that no broker can read is none either."""
    levels = tuple(waits)
    readable = 0 < level < 10**10
    assert delay_ms(str(level), levels) == (levels[min(level, len(levels)) - 1] if readable else None)


def test_without_levels_a_delayed_message_waits_a_second() -> None:
    assert [delay_ms(text, ()) for text in ("1", "99", "0", "-1", "x")] == [1000, 1000, None, None, None]


@pytest.mark.parametrize(
    ("topic", "group"),
    [("%RETRY%g", "g"), ("%DLQ%g", "g"), ("%RETRY%%DLQ%g", "%DLQ%g"), ("%RETRY%", ""), ("x%RETRY%g", ""), ("g", "")],
)
def test_the_group_of_retries_and_dead_letters(topic: str, group: str) -> None:
    assert group_of_topic(topic) == group


def test_names_that_look_like_those_of_a_broker() -> None:
    """Both ways of writing count, a part of a name does not."""
    for topic in ("RMQ_SYS_X", "rmq_sys_wheel_timer", "TBW102", "SCHEDULE_TOPIC_XXXX", "SELF_TEST_TOPIC"):
        assert is_system_topic(topic)
    for topic in ("Rmq_Sys_X", "xRMQ_SYS_", "TBW1024", "SCHEDULE_TOPIC", "tbw102", ""):
        assert not is_system_topic(topic)
    assert is_system_group("CID_RMQ_SYS_TRANS") and is_system_group("CID_ONSx") and is_system_group("TOOLS_CONSUMER")
    assert not is_system_group("TOOLS_CONSUMER2") and not is_system_group("RMQ_SYS_TRANS")
