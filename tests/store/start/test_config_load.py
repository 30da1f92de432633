"""Texts of configuration files as the parsers of each generation take them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from mqstore.formats.kinds import KINDS
from mqstore.formats.rocksdb_config import KV_DATA_VERSION, VERSION_ROW
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.queues.rocksdb_write import rewritten
from mqstore.store.settings.read import FILES
from mqstore.store.settings.rocksdb import table_of
from mqstore.store.start.config_load import GROUPS, OFFSETS, RULES, TOPICS, LoadAction, judge, load_config, load_table

from ... import stores
from .configured import GARBAGE, NEEDED, put

#: (versions that take it, text): single characters that are others, as the real parsers take them.
ALL, ONE, TWO = tuple(RULES), ("4.3", "4.9", "5.1", "5.3"), ("5.4", "5.5", "5.5.1")
ODD = (
    (ALL, b'{"offsetTable":{\x08"A@G":{0:1},"B@G":{0:5}}}'),
    ((), b'{"offsetTable":{\x0b"A@G":{0:1},"B@G":{0:5}}}'),
    (ONE, b'{"offsetTable":{"A@G":{0:1}\x0b,"B@G":{0:5}}}'),
    (ONE, b'{"offsetTable":{"A@G":{0:1}<"B@G":{0:5}}}'),
    (ONE, b'{"offsetTable":{"A@G":{0:1}.\n"B@G":{0:5}}}'),
    ((), b'{"offsetTable":{"A@G":{0:1}f"B@G":{0:5}}}'),
    (ALL, b'{"offsetTable":{"A@G":{0:1 1:2},"B@G":{0:5}}}'),
    (TWO, b'{"offsetTable":{"A@G":{0:1} "B@G":{0:5}}}'),
    (TWO, b'{"offsetTable":{\0"A@G":{0:1},"B@G":{0:5}}}'),
    (ALL, b'{"offsetTable":{"A@G":{0:1L,1:2.5},"B@G":{0:5}}}'),
    ((), b'{"dataVersion":{"counter":0<"stateVersion":0},"offsetTable":{"A@G":{0:1},"B@G":{0:5}}}'),
    (ONE, b'{"offsettable":{"A@G":{0:1},"B@G":{0:5}}}'),
    (("4.3", "4.9", "5.1", "5.3"), b'{"other":{0:1},"offsetTable":{"A@G":{0:1},"B@G":{0:5}}}'),
    (("4.3", "4.9"), b'{"groupTopicMap":{"G":5},"offsetTable":{"A@G":{0:1},"B@G":{0:5}}}'),
    (("4.3", "4.9", "5.4", "5.5", "5.5.1"), b'{"groupTopicMap":{"G":"a"},"offsetTable":{"A@G":{},"B@G":{}}}'),
)


@pytest.mark.parametrize(("taken_by", "text"), ODD)
def test_single_characters_that_are_others(taken_by: tuple[str, ...], text: bytes) -> None:
    found = {version: judge("consumerOffset.json", text, rules) for version, rules in RULES.items()}
    assert tuple(version for version in RULES if not found[version].problem) == taken_by
    for version in taken_by:
        assert list(found[version].value["offsetTable"]) == ["A@G", "B@G"], version


#: (file, a text of it, the first number that its field cannot hold), as the real managers take them.
INT, LONG = 1 << 31, 1 << 63
NUMBERS = (
    ("topics.json", '{"topicConfigTable":{"A":{"readQueueNums":#}}}', INT),
    ("topics.json", '{"topicConfigTable":{"A":{"perm":"#"}}}', INT),
    ("topics.json", '{"dataVersion":{"counter":#},"topicConfigTable":{}}', LONG),
    ("subscriptionGroup.json", '{"subscriptionGroupTable":{"A":{"retryMaxTimes":#}}}', INT),
    ("subscriptionGroup.json", '{"subscriptionGroupTable":{"A":{"brokerId":"#"}}}', LONG),
    ("consumerOffset.json", '{"offsetTable":{"A@G":{#:1}}}', INT),
    ("consumerOffset.json", '{"offsetTable":{"A@G":{0:#}}}', LONG),
    ("delayOffset.json", '{"offsetTable":{"#":1}}', INT),
    ("delayOffset.json", '{"offsetTable":{1:#}}', LONG),
)


#: (file, a text of it, what is taken for # in its place, what is refused), as the real managers of 4.9 … 5.5.1 do.
_PARTS = '{"topicQueueMappingInfoMap":{"A":{"hostedQueues":{0:#}}}}'
_CURRENT = '{"topicQueueMappingInfoMap":{"A":{"currIdMap":#}}}'
_ORDER = '{"table":{"A@G":{0:{"i":60000,"popTime":1795887000000,"ot":{5:1795887060000},#}}}}'
_BITS = '{"filterDataByTopic":{"A":{"groupFilterData":{"G":{"bloomFilterData":{#}}}}}}'
_GROUP = '{"subscriptionGroupTable":{"G":{#}}}'
INSIDE = (
    (_PARTS, ("[]", "[null]", '[{"gen":1,"endOffset":-1}]'), ("null", '"zz"', "[1]", '[{"gen":2147483648}]')),
    (_PARTS, ('[{"gen":"7"}]', '[{"bname":5}]'), ('[{"gen":"zz"}]', '[{}, {"timeOfEnd":"zz"}]', "{}, x:[]")),
    (_CURRENT, ("{}", "null", "{0:1}"), ('"zz"', "[]", "{q:1}", '{0:"zz"}', "{0:null}", "{0:2147483648}")),
    (_ORDER, ('"o":[]', '"o":null', '"o":[5,"1"]'), ('"o":[5,1,null]', '"o":[{}]', '"o":["zz"]', '"o":{}')),
    (_ORDER, ('"oc":{5:1}', '"oc":{5:null}'), ('"oc":{5:"zz"}', '"oc":{"q":1}', '"oc":{5:2147483648}')),
    (_ORDER, ('"ot":{5:2147483648}',), ('"ot":{5:"zz"}', '"ot":{"q":1}')),
    (_BITS, ('"bitNum":1', '"bitPos":[1,null]'), ('"bitNum":"x"', '"bitPos":{}', '"bitPos":["x"]')),
    ('{"filterDataByTopic":{"A":{#}}}', ("", '"groupFilterData":{}'), ('"groupFilterData":null',)),
    (_GROUP, ('"subscriptionDataSet":[{"version":1}]',), ('"subscriptionDataSet":[{"version":"x"}]',)),
    (_GROUP, ('"groupRetryPolicy":{"type":"CUSTOMIZED"}',), ('"groupRetryPolicy":{"type":[1]}',)),
    (
        _GROUP,
        ('"groupRetryPolicy":{"customizedRetryPolicy":{"next":[1,null]}}',),
        (
            '"groupRetryPolicy":{"customizedRetryPolicy":{"next":["x"]}}',
            '"groupRetryPolicy":{"customizedRetryPolicy":5}',
        ),
    ),
)


@pytest.mark.parametrize(("text", "taken", "refused"), INSIDE)
def test_what_values_have_inside(text: str, taken: tuple[str, ...], refused: tuple[str, ...]) -> None:
    """A manager refuses a file as it does for what stands one level higher."""
    name = next(
        file for file, kind in FILES.items() if any(f'"{table.member}"' in text[:28] for table in KINDS[kind].tables)
    )
    rules = [one for version, one in RULES.items() if name in one.known and version not in ("4.3", "4.9")]
    for value, one in product((*taken, *refused), rules):
        problem = judge(name, text.replace("#", value).encode(), one).problem
        assert bool(problem) is (value in refused), (value, problem)


@pytest.mark.parametrize(("name", "text", "end"), NUMBERS)
def test_a_number_beyond_an_int_or_a_long(name: str, text: str, end: int) -> None:
    """The whole file is refused."""
    for version, rules in RULES.items():
        for number, taken in ((end - 1, True), (-end, True), (end, False), (-end - 1, False), (10**40, False)):
            problem = judge(name, text.replace("#", str(number)).encode(), rules).problem
            assert taken is not bool(problem), (version, number)
            assert taken or f" is no integer of {end.bit_length()} bits" in problem


def test_a_version_beyond_a_long_is_no_matter_to_those_that_do_not_read_it() -> None:
    text = b'{"dataVersion":{"counter":9223372036854775808},"offsetTable":{}}'
    taken_by = [version for version, rules in RULES.items() if not judge("delayOffset.json", text, rules).problem]
    assert taken_by == ["4.3", "4.9"]


BROKEN = {
    "missing": None,
    "empty": b"",
    "NULs": bytes(4096),
    "garbage": GARBAGE,
    "cut": b'{"dataVersion":{"counter":1',
    "a number": b"5",
    "its table is a list": b'{"topicConfigTable":[],"subscriptionGroupTable":[],"offsetTable":[]}',
    "an entry is a number": b'{"topicConfigTable":{"A":1},"subscriptionGroupTable":{"A":1}'
    b',"offsetTable":{"A@G":1, "x":1}}',
    "more behind": b"{}}",
    "nested deep": b'{"a":' * 5000 + b"1" + b"}" * 5000,
}


@pytest.mark.parametrize("what", BROKEN)
def test_each_kind_of_damage_in_each_needed_file(what: str, config: Path) -> None:
    for version, name in product(RULES, NEEDED):
        dies = what == "nested deep" and RULES[version].deep_ends_start
        path, backup = config / name, config / f"{name}.bak"
        whole = backup.read_bytes()
        put(path, BROKEN[what])
        loads = partial(load_config, config, name, RULES[version])
        assert loads().start is (LoadAction.REFUSES if dies else LoadAction.BACKUP), (version, name)
        for gone in (None, b""):
            put(backup, gone)
            assert loads().start is (LoadAction.REFUSES if dies else LoadAction.EMPTY), (version, name)
        put(backup, GARBAGE)
        assert loads().start is LoadAction.REFUSES, (version, name)
        put(path, whole)
        put(backup, whole)


#: Of each file that a broker with RocksDBs takes over the directory of its RocksDB, its table, and an entry of that.
MERGED = {
    OFFSETS: ("consumerOffsets", "offsetTable", '"T@g":{0:9}'),
    TOPICS: ("topics", "topicConfigTable", '"T":{"topicName":"T","perm":6}'),
    GROUPS: ("subscriptionGroups", "subscriptionGroupTable", '"g":{"groupName":"g"}'),
}
#: What stands in front of that entry in a file beside RocksDBs → whether a broker takes it where its own counter is 0,
#: and where it is 8; None: no start. The real managers: `tests/interop/test_config_databases.py`.
BESIDE: dict[str | None, tuple[bool | None, bool | None]] = {
    '{"dataVersion":{"counter":20},#': (True, True),
    '{"dataVersion":{"counter":"20"},#': (True, True),
    '{"dataVersion":{"counter":8},#': (True, False),
    '{"dataVersion":{"counter":0},#': (False, False),
    '{"dataVersion":{"counter":-1},#': (False, False),
    '{"dataVersion":{"counter":null},#': (None, None),
    '{"dataVersion":null,#': (None, None),
    "{#": (False, False),
    '{"dataVersion":{"counter":20},#X': (None, None),
    "": (False, False),
    None: (False, False),
}


def beside(tmp_path: Path, name: str) -> Iterator[tuple[Layout, str | None, set[str] | None]]:
    """A store with each of these texts, its .bak whole, in front of no RocksDB, of one, and of one with a counter of 8;
    and the keys that a broker has then: of positions those of the file alone.
    """
    directory, table, entry = MERGED[name]
    root = stores.unpack("5.3.3-rocksdb", tmp_path)
    config, kept = root / "config", tmp_path / "kept"
    made = [text and text.replace("#", f'"{table}":{{{entry}}}}}').replace("}}X", "") for text in BESIDE]
    (config / f"{name}.bak").write_text(next(filter(None, made)))
    (config / directory).rename(kept)
    own, mine = set(table_of(kept, name)[table]), entry.split('"')[1]
    for which in (None, 0, 8):
        if which is not None:
            shutil.rmtree(config / directory, ignore_errors=True)
            shutil.copytree(kept, config / directory)
            row = {VERSION_ROW: b'{"counter":%d,"stateVersion":0,"timestamp":1}' % which}
            for file, data in rewritten(config / directory, row, KV_DATA_VERSION).made.items():
                (config / directory / file).write_bytes(data)
        for text, takes in zip(made, BESIDE.values(), strict=True):
            (config / name).unlink(missing_ok=True)
            if text is not None:
                (config / name).write_text(text)
            taken, there = takes[which == 8], set() if which is None else own
            if taken:
                there = {mine} if name == OFFSETS else {*there, mine}
            layout = Layout.open(root, BrokerConfig({"storeType": "defaultRocksDB"}))
            yield layout, text, None if taken is None else there


@pytest.mark.parametrize("name", MERGED)
def test_what_a_broker_with_databases_takes_of_a_file(name: str, tmp_path: Path) -> None:
    for layout, text, wanted in beside(tmp_path, name):
        found = load_table(layout, name, RULES["5.5"])
        assert (found.start is LoadAction.REFUSES) == (wanted is None), (text, found)
        if wanted is not None:
            assert set(found.taken.value[MERGED[name][1]] if found.taken else {}) == wanted, (text, found)
            assert found.reason or found.taken
