"""What one record adds, against what a batch of it adds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.sys_flag import SysFlag
from mqstore.store.broker.dispatch import dispatch_columns
from mqstore.store.broker.dispatch_record import Dispatching, dispatch_record
from mqstore.store.broker.system_topics import SCHEDULE_TOPIC, parse_levels

from .batches import batch_of

NAMES = st.sampled_from((b"UNIQ_KEY", b"KEYS", b"TAGS", b"DELAY", b"INNER_MULTI_DISPATCH", b""))
VALUES = st.sampled_from((b"", b"k", b" k  l ", "\u00e9\U0001f600".encode(), b"\xff", b"3", b"-1", b"99", b"3x"))
ITEMS = st.lists(st.tuples(NAMES, VALUES), max_size=6)
TOPICS = st.sampled_from((b"T", SCHEDULE_TOPIC.encode(), "\u8ba2".encode(), b"t\xff"))
STATES = st.sampled_from((0, SysFlag.PREPARED, SysFlag.COMMIT, SysFlag.ROLLBACK))
LEVELS = st.sampled_from((parse_levels(), (7000,), ()))


@given(ITEMS, st.booleans(), TOPICS, STATES, st.booleans(), LEVELS)
def test_one_record_is_dispatched_as_in_a_batch(
    items: list[tuple[bytes, bytes]], ended: bool, topic: bytes, state: int, tags: bool, levels: tuple[int, ...]
) -> None:
    """Of stored texts in any state: names twice, without value, no UTF-8, no separator at the end."""
    text = b"\2".join(b"%b\1%b" % item for item in items) + b"\2" * ended
    batch = batch_of([text], topic=topic, sys_flag=int(state))
    how = Dispatching(index_tags=tags, multi_dispatch=False, delay_levels=levels)
    many = dispatch_columns(batch.columns, how)
    stored_ms = int(batch.columns.ints("store_timestamp")[0])
    one = dispatch_record(topic, text, state, stored_ms, index_tags=tags, delay_levels=levels)
    assert [one.topic] * len(many.units) == [many.topics[at] for at in many.units.topic_id.tolist()]
    assert many.units.tags_code.tolist() == [one.tags_code] * one.has_unit
    assert many.items.key_hash.tolist() == one.key_hashes
