"""Plans that move positions: what they write is what brokers write, and only that changes."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mqstore.formats.pop import REVIVE_GROUP, REVIVE_TOPIC
from mqstore.store.broker.topics import read_json
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.errors import InvalidInput, NotFound, Refused, Unclean, Unreadable
from mqstore.store.offsets.lag import LagQuery, offsets_of
from mqstore.store.offsets.move import Ahead, Merge, WhichPosition, compare, open_side, parse_reset, plan_moves, side_of
from mqstore.store.offsets.positions import Only, Position, positions_of
from mqstore.store.queues.rocksdb_write import in_order
from mqstore.store.search.store import StoreReader

from ... import stores
from .moved import carried_out, planned, positions


@pytest.mark.parametrize(
    "name", [*("5.3.3-clean", "4.9.7-clean", "5.5.0-pop", "5.3.3-rocksdb"), *("5.5.1-config-v2", "5.5.1-config-single")]
)
def test_only_what_was_asked_for_changes(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    before = positions(root)
    key = next(key for key in sorted(before) if key[0] == "offset" and before[key] > 2)
    moved = carried_out(root, f"{key[2]}/{key[3]}@{key[1]}=1")
    assert [(move.before, move.after) for move in moved.moves] == [(before[key], 1)]
    assert positions(root) == {**before, key: 1}
    carried_out(root, f"{key[2]}/{key[3]}@{key[1]}={before[key]}")
    assert positions(root) == before


def test_ends_of_a_revive_queue(tmp_path: Path) -> None:
    """Its group notes the last record that a broker has read: the newest, or one before the first."""
    root = stores.unpack("5.5.0-pop", tmp_path)
    topic, key = f"{REVIVE_TOPIC}TestCluster", ("offset", REVIVE_GROUP, f"{REVIVE_TOPIC}TestCluster", 1)
    for to, after in (("latest", 30), ("earliest", -1)):
        carried_out(root, f"{topic}/1@{REVIVE_GROUP}={to}")
        assert positions(root)[key] == after
    with pytest.raises(InvalidInput, match="from -1 to 30: 31 is outside"):
        planned(root, f"{topic}/1@{REVIVE_GROUP}=31")


@pytest.mark.parametrize("name", ["5.3.3-clean", "4.9.7-clean", "5.1.4-clean"])
def test_a_file_moved_and_moved_back_has_the_bytes_of_the_broker(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    path = root / "config" / "consumerOffset.json"
    text = path.read_bytes()
    found = sorted(positions(root).items())
    key, offset = next((key, at) for key, at in found if key[0] == "offset" and at > 2)
    carried_out(root, f"{key[2]}/{key[3]}@{key[1]}=earliest")
    assert path.read_bytes() != text
    carried_out(root, f"{key[2]}/{key[3]}@{key[1]}={offset}")
    assert path.read_bytes() == text


def test_a_group_without_a_position_gets_one(tmp_path: Path) -> None:
    """Of all queues of the topic, also where the file is not there yet."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    for path in (root / "config").glob("consumerOffset.json*"):
        path.unlink()
    moved = carried_out(root, "orders@group-a_tags=earliest", "orders/2@group-a_tags=latest")
    assert [(move.queue_id, move.before, move.after) for move in moved.moves] == [
        (0, None, 0),
        (1, None, 0),
        (2, None, 22),
        (3, None, 0),
    ]
    assert positions(root)["offset", "group-a_tags", "orders", 2] == 22


def test_times_lead_to_the_first_message_stored_then(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path)
    with StoreReader(root) as store, store.queues.open("orders", 1) as queue:
        unit = queue.unit(7)
        assert unit is not None
        time = store.store_time(unit.physical_offset)
    assert time is not None
    exact = datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="milliseconds")
    (move,) = planned(root, f"orders/1@group-a_tags={exact}").moves
    with StoreReader(root) as store, store.queues.open("orders", 1) as queue:
        before, at = queue.unit(move.after - 1), queue.unit(move.after)
        assert before is not None and at is not None
        earlier, there = (store.store_time(one.physical_offset) for one in (before, at))
    assert earlier is not None and there is not None
    assert earlier < time <= there


@pytest.mark.parametrize("take", list(WhichPosition))
def test_merge_takes_one_of_two_and_stays_inside(take: WhichPosition, tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path)
    own = positions(root)
    others = [
        Position("offset", "group-a_tags", "orders", 0, 5, ""),
        Position("offset", "group-a_tags", "orders", 1, 99, ""),
        Position("offset", "new", "orders", 3, 4, ""),
        Position("offset", "new", "gone", 0, 4, ""),
        Position("delay", "", "SCHEDULE_TOPIC_XXXX", 0, 1, ""),
    ]
    moved = planned(root, merge=Merge(others, take))
    found = {move.key: (move.before, move.after, move.wished) for move in moved.moves}
    assert moved.left_out == 1
    assert found.pop(("new", "orders", 3)) == (None, 4, 4)
    if take is WhichPosition.MIN:
        assert found == {("group-a_tags", "orders", 0): (23, 5, 5)}
    else:
        assert own["offset", "group-a_tags", "orders", 1] == 25
        assert found == {}


@pytest.mark.parametrize("text", ["", "orders", "orders@g", "@g=1", "orders@=1", "=1", "orders=1@"])
def test_what_is_no_position(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_reset(text)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("orders/0@group-a_tags=24", InvalidInput),
        ("orders/0@group-a_tags=99999999999999999999999999", InvalidInput),
        ("orders/4@group-a_tags=0", NotFound),
        ("orders@nobody=0", NotFound),
    ],
)
def test_what_cannot_be(text: str, error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(error):
        planned(stores.unpack("5.3.3-clean", tmp_path), text)


def test_a_broken_file_is_repaired_first(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path)
    path = root / "config" / "consumerOffset.json"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(Refused, match="repair"):
        planned(root, "orders@group-a_tags=0")


def test_compare_tells_who_is_ahead(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path / "a")
    other = stores.unpack("5.3.3-clean", tmp_path / "b")
    carried_out(other, "orders/0@group-a_tags=3")
    with StoreReader(root) as store:
        here = side_of(store)
    for place in (other, other / "config", other / "config" / "consumerOffset.json"):
        found = [row for row in compare(here, open_side(place)) if row.ahead is not Ahead.SAME]
        assert [(row.key, row.ahead, row.difference) for row in found] == [
            (("offset", "group-a_tags", "orders", 0), Ahead.HERE, 20)
        ]


@pytest.mark.parametrize(
    "options", [{"storeType": "default"}, {"configManagerVersion": "v2"}, {"storePathRootDir": "/x"}]
)
def test_another_store_is_read_as_it_is(options: dict[str, str], tmp_path: Path) -> None:
    """Whatever form this one has: positions are taken over where a store goes from one to the other."""
    root = stores.unpack("5.5.1-rocksdb", tmp_path)
    found = open_side(root, BrokerConfig({**options, "mappedFileSizeConsumeQueue": "400"}))
    assert found.positions == open_side(root).positions and found.positions.rows


@pytest.mark.parametrize("name", ["subscriptionGroup.json", "topics.json", "topics.json.bak"])
def test_a_file_without_positions_is_refused(name: str, tmp_path: Path) -> None:
    """Whatever else of config/ it is: it would have no difference, and nothing to move."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    with pytest.raises(InvalidInput, match="no file of positions"):
        open_side(root / "config" / name)


def test_a_file_that_has_lost_its_positions_is_not_the_same(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path)
    path = tmp_path / "consumerOffset.json"
    path.write_text('{"offsetTable":{}}')
    with StoreReader(root) as store:
        found = list(compare(side_of(store), open_side(path)))
    assert found and {(row.key[0], row.ahead) for row in found} == {("offset", Ahead.ONLY_HERE)}


def test_a_file_whose_bak_a_broker_takes_is_not_written_into(tmp_path: Path) -> None:
    """It reads as JSON, and its broker refuses one entry: with that mended it would come back."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    path = root / "config" / "consumerOffset.json"
    path.write_text('{"offsetTable":{"orders@group-a_tags":{0:"x",1:25}}}')
    with pytest.raises(Refused, match="repair"):
        planned(root, "orders/0@group-a_tags=3")


def test_bytes_that_are_no_utf_8_stay(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path)
    path = root / "config" / "consumerOffset.json"
    path.write_bytes(path.read_bytes().replace(b"fifo-topic@", b"fi\xfffo@"))
    text = path.read_bytes()
    carried_out(root, "orders/0@group-a_tags=3")
    assert b'"fi\xfffo@' in path.read_bytes()
    carried_out(root, "orders/0@group-a_tags=23")
    assert path.read_bytes() == text


@pytest.mark.parametrize("lost", ["orders", None])
def test_queues_that_are_behind_the_log_are_recovered_first(lost: str | None, tmp_path: Path) -> None:
    """Where they end is what the next start makes of it: nothing moves, nobody is told to be ahead."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    for path in (root / "consumequeue").iterdir():
        if path.name != lost:
            shutil.rmtree(path)
    path = root / "consumequeue" / "orders" / "1" / f"{0:020}"
    if lost:
        path.write_bytes(path.read_bytes()[:60] + bytes(len(path.read_bytes()) - 60))
    with pytest.raises(Unclean, match="recover"):
        planned(root, "orders/0@group-a_tags=earliest")
    with StoreReader(root) as store:
        found = offsets_of(store, "s", LagQuery(0, by="queue", group="group-a_tags", topic="orders"))
    row = next(row for row in found.rows if row["queue_id"] == 1)
    assert (row["state"], row["lag"], row["offset"]) == ("unknown", None, 25)
    assert any("are not known" in note for note in found.notes)


def test_queues_that_cannot_be_read_move_nothing(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-rocksdb", tmp_path)
    manifest = next((root / "consumequeue").glob("MANIFEST-*"))
    manifest.write_bytes(b"")
    with pytest.raises(Unreadable, match="cannot be read"):
        planned(root, "TopicA@nobody=latest")


@pytest.mark.parametrize("take", list(WhichPosition))
def test_merge_never_moves_the_other_way(take: WhichPosition, tmp_path: Path) -> None:
    """Own positions outside of the queue stay, where one brought inside of it would lose what it had."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    path = root / "config" / "consumerOffset.json"
    path.write_text('{"offsetTable":{"orders@g":{0:99,1:5},"orders@CID_RMQ_SYS_TRANS":{0:5}}}')
    rows = (("g", 0, 120), ("g", 1, 5), ("CID_RMQ_SYS_TRANS", 0, 7), ("CID_RMQ_SYS_TRANS", 1, 1))
    others = [Position("offset", group, "orders", queue, at, "") for group, queue, at in rows]
    merge = Merge(others, take)
    assert planned(root, merge=merge).moves == ()
    with StoreReader(root) as store:
        named = plan_moves(store, (), merge, only=Only("CID_RMQ_SYS_TRANS", "orders"))
    assert {move.group for move in named.moves} == {"CID_RMQ_SYS_TRANS"}


def test_a_plan_is_kept_to_a_group_and_a_topic(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path)
    resets = [parse_reset("*@group-a_tags=earliest")]
    with StoreReader(root) as store:
        for other in (Only("nobody"), Only("group-a-retry"), Only(None, "nothing")):
            with pytest.raises(NotFound, match="no such group or topic"):
                plan_moves(store, resets, only=other)
        found = plan_moves(store, resets, only=Only("group-a*", "orders")).moves
    assert {move.topic for move in found} == {"orders"}


def test_the_group_tells_the_table_of_a_light_queue(tmp_path: Path) -> None:
    """As LmqConsumerOffsetManager asks it: lmqOffsetTable for groups that begin with %LMQ%, whatever the topic is."""
    root = stores.unpack("5.3.3-lmq", tmp_path)
    path = root / "config" / "lmqConsumerOffset.json"
    before = path.read_text()
    ours = '"lmqOffsetTable":{"plain@%LMQ%b":2,"%LMQ%a@lmq_group":7},"offsetTable":{"%LMQ%a@lmq_group":{0:5},'
    path.write_text(re.sub(r'"lmqOffsetTable":\{\},\s*"offsetTable":\{', ours, before))
    (plain, light) = carried_out(root, "%LMQ%a@lmq_group=1", "plain@%LMQ%b=latest").moves
    assert (plain.group, plain.before, plain.after) == ("%LMQ%b", 2, 20)
    assert (light.group, light.before, light.after) == ("lmq_group", 5, 1)
    content = read_json(path)
    assert content is not None
    assert content["lmqOffsetTable"] == {"plain@%LMQ%b": 20, "%LMQ%a@lmq_group": 7}
    assert content["offsetTable"]["%LMQ%a@lmq_group"] == {0: 1}
    assert "plain@%LMQ%b" not in content["offsetTable"]
    path.write_text(before)
    carried_out(root, "%LMQ%a/0@lmq_group=3")
    assert positions(root)["offset", "lmq_group", "%LMQ%a", 0] == 3


def test_a_group_of_light_queues_has_one_position_in_a_topic(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-lmq", tmp_path)
    path = root / "config" / "lmqConsumerOffset.json"
    path.write_text(path.read_text().replace('"lmqOffsetTable":{}', '"lmqOffsetTable":{"mqtt@%LMQ%b":2}'))
    with pytest.raises(InvalidInput, match=r"and none for queue 1; name mqtt/0"):
        planned(root, "mqtt@%LMQ%b=latest")
    assert len(planned(root, "mqtt/0@%LMQ%b=latest").moves) == 1


def test_what_no_broker_looks_for_is_no_position(tmp_path: Path) -> None:
    """Of a table of lmqConsumerOffset.json that is not its group's."""
    root = stores.unpack("4.9.7-lmq", tmp_path)
    path = root / "config" / "lmqConsumerOffset.json"
    path.write_text('{"lmqOffsetTable":{"%LMQ%a@g":5,"T@%LMQ%g":2},"offsetTable":{"T@%LMQ%g":{0:3},"%LMQ%a@g":{0:1}}}')
    read = {("lmq", "%LMQ%g", "T", 0): 2, ("offset", "g", "%LMQ%a", 0): 1}
    assert {key: at for key, at in positions(root).items() if key[0] != "delay"} == read
    assert {row.key: row.offset for row in open_side(path).positions.rows} == read
    with StoreReader(root) as store:
        assert positions_of(store.layout, "4.9").notes == [
            "config/lmqConsumerOffset.json: 2 positions are in a table that brokers do not read for this group"
        ]


def test_zeros_before_a_number_count_for_nothing(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path)
    (move,) = planned(root, f"orders/0@group-a_tags={'0' * 30}5").moves
    assert move.after == 5


def test_a_database_names_only_what_is_there() -> None:
    names = ["CURRENT", "MANIFEST-000009", "000007.log", "OPTIONS-000011", "000008.sst"]
    assert in_order(names) == ["000008.sst", "000007.log", "OPTIONS-000011", "MANIFEST-000009", "CURRENT"]


def test_a_queue_that_has_lost_its_units(tmp_path: Path) -> None:
    """The end of the queue would be 0, and the group would get all again once it is mended."""
    root = stores.unpack("4.9.7-clean", tmp_path)
    for file in (root / "consumequeue/orders/0").iterdir():
        file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(Unclean, match=r"the queue orders/0 is behind the log.*mqstore recover"):
        planned(root, "orders@group-a-retry=latest")
    assert planned(root, "orders/1@group-a-retry=earliest").moves
