"""The library: messages, Arrow and data frames of a store, names of the package, what they show."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import mqstore
from mqstore import Batch, DamageWarning, Store, StoreError
from mqstore.formats.consume_queue import UNIT
from mqstore.store.errors import Corrupted, InvalidInput, Missing, NotFound, Refused

from .. import stores
from .session.test_undo import everything

Unpack = Callable[[str], Path]
BODY_AT = 88
"""Bytes of a record before its body, with 4-byte hosts."""


@pytest.fixture
def clean(store: Unpack) -> Path:
    return store("5.3.3-clean")


def test_batches_that_are_kept_stay_what_they_are(clean: Path) -> None:
    with Store(clean) as opened:
        kept = [item for item in opened.log.scan() if isinstance(item, Batch)]
        seen = [item.columns.ragged("body").tolist() for item in opened.log.scan(reuse=True) if isinstance(item, Batch)]
    assert [batch.columns.ragged("body").tolist() for batch in kept] == seen
    for batch in kept:
        assert batch.body_crc_ok is not None and batch.body_crc_ok.all()


@pytest.mark.parametrize("name", ["5.3.3-clean", "4.9.7-killed", "5.3.3-killed-bit", "4.3.1-clean"])
def test_columns_are_the_fields_of_the_messages(name: str, store: Unpack) -> None:
    with Store(store(name)) as opened:
        names = ["position", "topic", "queue_offset", "keys", "properties", "body", "body_crc_ok"]
        table = opened.to_arrow(names, on_damage="skip").read_all()
        records = table.to_pylist()
        by_place = {message.position: message for message in opened.messages(on_damage="skip") if message.inner is None}
    assert table.column_names == [*names, "body_compression", "body_error"]
    assert records
    for record in records:
        message = by_place.get(record["position"])
        if message is None:
            continue  # a batch record: `messages` has those inside of it
        assert record["topic"] == message.topic
        assert record["queue_offset"] == message.queue_offset
        assert record["keys"] == message.keys
        assert dict(record["properties"]) == message.properties
        assert record["body"] == message.body().data
        assert record["body_crc_ok"] == message.body_crc_ok


def test_a_condition_on_the_crc_of_bodies_computes_it(clean: Path) -> None:
    with Store(clean) as opened:
        positions = [message.position for message in opened.messages()]
        spoilt = positions[5]
        first = Path(opened.log.files[0].path)
    with first.open("r+b") as file:
        file.seek(spoilt + BODY_AT)
        byte = file.read(1)[0]
        file.seek(spoilt + BODY_AT)
        file.write(bytes([byte ^ 1]))
    with Store(clean) as opened:
        for text, wanted in (("FALSE", [spoilt]), ("TRUE", [p for p in positions if p != spoilt])):
            where = f"@body_crc_ok = {text}"
            assert [m.position for m in opened.messages(where=where)] == wanted
            found = opened.to_arrow(["position"], where=where).read_all()  # none of bodies is shown
            assert found.column("position").to_pylist() == wanted


def test_some_of_the_messages(clean: Path) -> None:
    with Store(clean) as opened:
        everything = list(opened.messages())
        some = list(opened.messages(["ord*", "fifo-topic"], where="@queue_id = 1"))
        wanted = [m for m in everything if m.queue_id == 1 and (m.topic.startswith("ord") or m.topic == "fifo-topic")]
        assert [m.position for m in some] == [m.position for m in wanted] and some
        since = everything[len(everything) // 2].store_timestamp
        moment = datetime.fromtimestamp(since / 1000, UTC)
        late = [m.position for m in everything if m.store_timestamp >= since]
        for form in (since, str(since), moment):
            assert [m.position for m in opened.messages(since=form)] == late
            found = opened.to_arrow("position", since=form).read_all()
            assert found["position"].to_pylist() == late
        assert opened.to_arrow(until=0).read_all().num_rows == 0


def test_damage_is_told(store: Unpack) -> None:
    with Store(store("4.9.7-killed-hole")) as opened:
        with pytest.warns(DamageWarning, match="cannot be read"):
            rows = opened.to_arrow("topic").read_all().num_rows
        with pytest.raises(Corrupted):
            list(opened.messages(on_damage="raise"))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert opened.to_arrow("topic", on_damage="skip").read_all().num_rows == rows > 0


@pytest.mark.parametrize("empty", [False, True])
def test_a_log_that_is_not_there_is_no_empty_one(empty: bool, clean: Path) -> None:
    """Its disk may not be mounted."""
    shutil.rmtree(clean / "commitlog")
    if empty:
        (clean / "commitlog").mkdir()
    with Store(clean) as store:
        for read in (store.messages, store.to_arrow):
            with pytest.raises(Refused, match="no commit log, but full queues: is the path wrong, or a disk"):
                read(on_damage="skip")
    for part in ("consumequeue", "index"):
        shutil.rmtree(clean / part)
    with Store(clean) as store:
        if empty:
            assert [*store.messages()] == []
        else:
            with pytest.raises(Missing, match="no commitlog here"):
                store.messages()


def test_a_disk_of_the_log_that_is_not_mounted_is_told(store: Unpack, tmp_path: Path) -> None:
    root = store("5.3.3-multipath-killed")
    config = stores.config("5.3.3-multipath-killed", root)
    (root / "d1").rename(tmp_path / "away")
    with Store(root, config) as opened:
        with pytest.warns(DamageWarning, match="d1/commitlog is not there: is a disk not mounted") as told:
            read = opened.messages()
        assert [*read] and told[0].filename == __file__
        with pytest.raises(Refused, match="is a disk not mounted"):
            opened.messages(on_damage="raise")


def test_what_a_disk_does_not_give_is_damage(store: Unpack, tmp_path: Path) -> None:
    root = store("5.3.3-clean")
    code = """
import sys, warnings
from pathlib import Path
from mqstore import DamageWarning, Store
from mqstore.store.errors import UnreadableRange
from tests.failing_disk import fail_here

root = Path(sys.argv[1])
fail_here(min((root / "commitlog").iterdir()), 8192, 4096)
for asked in (lambda s, how: len(list(s.messages(on_damage=how))),
              lambda s, how: s.to_arrow(on_damage=how).read_all().num_rows):
    with Store(root) as opened, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = asked(opened, "warn")
        assert 300 < found < 377, found
        assert [w.category for w in told] == [DamageWarning], told
        assert told[0].filename == "<string>" and "Input/output error" in str(told[0].message)
        assert asked(opened, "skip") == found and len(told) == 1
        try:
            asked(opened, "raise")
        except UnreadableRange as error:
            assert (error.offset, error.length) == (8192, 4096)
        else:
            raise AssertionError("no error")
"""
    done = subprocess.run([sys.executable, "-c", code, str(root)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_times_before_1970_and_none_at_all(clean: Path) -> None:
    with Store(clean) as opened:
        count = len(list(opened.messages()))
        for since in (-1, datetime(1960, 1, 1, tzinfo=UTC)):
            assert len(list(opened.messages(since=since))) == count
            assert not list(opened.messages(until=since))
        with pytest.raises(InvalidInput, match="no such time"):
            opened.messages(since=datetime.min)


def test_a_body_that_does_not_decompress_is_told(store: Unpack) -> None:
    root = store("5.3.3-clean")
    with Store(root) as opened:
        packed = next(m for m in opened.messages() if m.body().compression)
    log = min((root / "commitlog").iterdir())
    data = log.read_bytes()
    at = data.index(packed.stored_body, packed.position)
    log.write_bytes(data[:at] + bytes(4) + data[at + 4 :])
    with Store(root) as opened:
        rows = opened.to_arrow(["position", "body"], on_damage="skip").read_all().to_pylist()
    (row,) = [row for row in rows if row["position"] == packed.position]
    assert row["body"][4:] == packed.stored_body[4:]
    assert row["body_crc_ok"] is False and "does not decompress" in row["body_error"]


def test_a_unit_that_points_elsewhere_is_no_message(clean: Path) -> None:
    with Store(clean) as opened:
        other = opened.message("logs", 0, 0).position
    queue = min((clean / "consumequeue" / "orders" / "0").iterdir())
    data = bytearray(queue.read_bytes())
    data[: UNIT.sizeof()] = UNIT.build({"physical_offset": other, "size": 100, "tags_code": 0})
    queue.write_bytes(data)
    with Store(clean) as opened, pytest.warns(UserWarning) as told:
        assert opened.message("orders", 0, 0).position != other
    assert "points at a message of logs/0: left out" in str(told[0].message)
    with Store(clean) as opened, warnings.catch_warnings(record=True), pytest.raises(NotFound, match="no message 99"):
        opened.message("orders", 0, 99)


@pytest.mark.parametrize("gone", ["consumequeue", "consumequeue/orders", "units"])
def test_a_message_without_a_queue_unit_is_found_in_the_log(gone: str, clean: Path) -> None:
    """With a warning, as by `get`; what is not in the log is not found."""
    with Store(clean) as opened:
        wanted, end = opened.message("orders", 0, 21).to_json(), opened.offset_at("orders", 0, 1 << 50)
    queue = min((clean / "consumequeue" / "orders" / "0").iterdir())
    if gone == "units":
        data, begin = queue.read_bytes(), 21 * UNIT.sizeof()
        queue.write_bytes(data[:begin] + bytes(len(data) - begin))
    else:
        shutil.rmtree(clean / gone)
    with Store(clean) as opened:
        with pytest.warns(UserWarning, match="scanning the log"):
            assert opened.message("orders", 0, 21).to_json() == wanted
        with warnings.catch_warnings(record=True), pytest.raises(NotFound):
            opened.message("orders", 0, 99)
        with pytest.warns(UserWarning, match="the log|do not count"):
            assert opened.offset_at("orders", 0, 1 << 50) == (21 if gone == "units" else end)
        assert ("0 queues (there are no consume queues)" in str(opened._repr_html_())) == (gone == "consumequeue")


def test_a_path_and_options_by_name_will_do(clean: Path) -> None:
    whole = mqstore.verify(clean)
    assert whole.status.value == "clean" and mqstore.verify(str(clean)).records == whole.records > 0
    options: dict[str, object] = {"mapedFileSizeCommitLog": 65536, "messageIndexEnable": "false"}
    with Store(clean, options) as opened:
        assert dict(opened.config) == {"mappedFileSizeCommitLog": "65536", "messageIndexEnable": "false"}
        assert opened.config.words[1] == "mappedFileSizeCommitLog=65536"
    with pytest.raises(InvalidInput, match=r"options by name, not 'broker\.conf'"):
        Store(clean, "broker.conf")  # type: ignore[arg-type]
    with mqstore.StoreWriter.open(clean.parent / "new", {"mappedFileSizeCommitLog": 65536}) as writer:
        writer.append(mqstore.NewMessage(b"T", b"x"))
    assert (clean.parent / "new" / "commitlog" / f"{0:020d}").stat().st_size == 65536


def test_what_makes_no_sense_is_refused_at_once(clean: Path) -> None:
    with Store(clean) as opened:
        with pytest.raises(InvalidInput, match="no column 'bodi'"):
            opened.to_arrow("bodi")
        with pytest.raises(InvalidInput, match="no column is named"):
            opened.to_arrow([])  # a stream without columns has no rows
        with pytest.raises(InvalidInput):
            opened.messages(where="a =")
        for read in (opened.messages, opened.to_arrow):
            with pytest.raises(InvalidInput, match="where has text after its end: \"TAGS = 'TagA'"):
                read(where="@queue_id = 1 TAGS = 'TagA'")
        with pytest.raises(InvalidInput):
            opened.messages(since="yesterdai")
        with pytest.raises(InvalidInput, match="since 2 is later than until 1"):
            opened.messages(since=2, until=1)
        with pytest.raises(InvalidInput, match="on_damage"):
            opened.messages(on_damage="ignore")  # type: ignore[arg-type]


def test_data_frames(clean: Path) -> None:
    polars = pytest.importorskip("polars")
    with Store(clean) as opened:
        rows = opened.to_arrow().read_all()
        assert pa.RecordBatchReader.from_stream(opened).read_all().equals(rows)
        assert polars.DataFrame(opened).height == rows.num_rows
        counts = opened.to_polars("topic").group_by("topic").len()
        assert dict(counts.iter_rows())["orders"] == 87
        assert (opened.to_pandas(["topic"])["topic"] == "orders").sum() == 87


def test_damage_ends_a_data_frame_with_its_own_error(store: Unpack) -> None:
    pytest.importorskip("polars")
    with Store(store("5.3.3-killed-page")) as opened:
        for frame in (opened.to_polars, opened.to_pandas):
            with pytest.raises(Corrupted, match="of the log cannot be read"):
                frame(["topic"], on_damage="raise")
        with pytest.warns(DamageWarning):
            assert opened.to_polars(["topic"]).height == sum(1 for _ in opened.messages(on_damage="skip"))


def test_names_of_the_package() -> None:
    code = (
        "import mqstore, sys\n"
        "assert 'numpy' not in sys.modules\n"
        "print(dir(mqstore) == sorted([*mqstore.__all__, '__version__']))\n"
        "print(all(getattr(mqstore, name).__doc__ for name in mqstore.__all__))\n"
        "from mqstore import *\n"
        "print(mqstore.__version__, Store.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[:2] == ["True", "True"], done
    assert done.stdout.split()[-1] == "Store"


def test_short_texts(store: Unpack) -> None:
    root = store("5.3.3-killed-torn")
    with Store(root) as opened:
        batch = next(item for item in opened.log.scan() if isinstance(item, Batch))
        message = next(opened.messages(on_damage="skip"))
        shown = [repr(thing) for thing in (opened, opened.log, batch, message)]
        verdict = mqstore.verify(opened)
        shown.append(repr(verdict))
        assert all(len(text) < 200 and "\n" not in text for text in shown), shown
        html = opened._repr_html_() or ""
        assert html.count("<tr>") == 1 + min(50, len(opened.queue_summaries))
        assert "<td>damaged</td>" not in html and "damaged" in (verdict._repr_html_() or "")


def test_a_store_of_batches(store: Unpack) -> None:
    name = next(name for name in stores.FEW if "batchcq" in name)
    with Store(store(name)) as opened:
        messages = list(opened.messages())
        assert any(message.inner is not None for message in messages)
        assert len(messages) > opened.to_arrow("position").read_all().num_rows
        html = opened._repr_html_() or ""
        for topic, queue_id in {(m.topic, m.queue_id) for m in messages}:
            assert f"<td>{topic}</td><td>{queue_id}</td>" in html


def test_timers_and_what_a_loss_of_their_files_does(store: Unpack) -> None:
    root = store("5.3.3-timer-clean")
    before = everything(root)
    with Store(root) as opened:
        states = Counter(timer.state.value for timer in opened.timers(1_795_211_100_000).rows)
    assert sum(states.values()) == 38 and states["pending"] > 0, states
    (root / "timerwheel").unlink()
    found = mqstore.recovery(root, broker_version="5.3", policy="keep", lost_tag="gone")
    assert everything(root) == {name: data for name, data in before.items() if name != "timerwheel"}
    done = mqstore.apply(found)
    assert mqstore.recovery(root, broker_version="5.3").recovery.nothing_to_do
    assert mqstore.undo(root).session == done.session


def test_a_recovery_that_is_refused(store: Unpack) -> None:
    """The same error for whoever asks to carry it out."""
    root = store("5.3.3-clean")
    shutil.rmtree(root / "commitlog")
    found = mqstore.recovery(root)
    assert found.recovery.plan is None
    with pytest.raises(StoreError, match="force-empty-log"):
        mqstore.apply(found)


@pytest.mark.parametrize(
    "wrong", [{"policy": "all"}, {"policy": "broker", "lost_tag": "x"}, {"lost_tag": "a b"}], ids=str
)
def test_what_is_asked_is_checked_before_the_log_is_read(
    wrong: dict[str, str], clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqstore.store.verify.judged.verified_before", lambda *_, **__: pytest.fail("the log is read"))
    with pytest.raises(
        InvalidInput, match=r"no such policy: all; there are keep, broker|only with --policy keep|single tag"
    ):
        mqstore.recovery(clean, **wrong)  # type: ignore[arg-type]
