"""BrokerConfig: Java properties, RocketMQ's names in both spellings, overrides."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.broker.profiles import file_rules_of
from mqstore.store.disk import broker_conf
from mqstore.store.disk.broker_conf import BrokerConfig, FileRules, parse_properties
from mqstore.store.errors import InvalidInput, LimitExceeded, Missing, Unreadable


def test_reads_java_properties() -> None:
    text = r"""
# comment
  ! another
brokerName=broker-a
  spaced =  value with spaces\u0020
colon:1
blank value
no_value
long = one,\
    two,\
    three
unicode = \u0041\u4e2d
path=C\:\\store\tx
twice=1
twice=2
a\=b=c"""
    assert parse_properties(text.replace("\n", "\r\n")) == {
        "brokerName": "broker-a",
        "spaced": "value with spaces ",
        "colon": "1",
        "blank": "value",
        "no_value": "",
        "long": "one,two,three",
        "unicode": "A中",
        "path": "C:\\store\tx",
        "twice": "2",
        "a=b": "c",
    }


@given(st.text())
def test_any_text_can_be_parsed(text: str) -> None:
    assert all(isinstance(value, str) for value in parse_properties(text).values())


@given(st.dictionaries(st.from_regex(r"[a-zA-Z]+", fullmatch=True), st.from_regex(r"[!-~]*", fullmatch=True)))
def test_plain_options_come_back(options: dict[str, str]) -> None:
    options = {name: value.strip() for name, value in options.items() if "\\" not in value}
    options = {name: value for name, value in options.items() if value[:1] not in ("=", ":")}
    text = "\n".join(f"{name}={value}" for name, value in options.items())
    assert parse_properties(text) == options


def test_both_spellings_are_one_option() -> None:
    config = BrokerConfig({"mapedFileSizeCommitLog": "8192"})
    assert config.get("mappedFileSizeCommitLog") == config.get("mapedFileSizeCommitLog") == "8192"
    assert config.with_set(["mappedFileSizeCommitLog=1"]).get_int("mapedFileSizeCommitLog") == 1


def test_the_last_setting_wins_and_unknown_names_stay() -> None:
    config = BrokerConfig({"a": "1"}).with_set(["a=2", "b = x=y ", "a=3"])
    assert dict(config) == {"a": "3", "b": "x=y"}


def test_a_new_store_takes_no_place_of_the_old_one() -> None:
    places = ["storePathCommitLog=/a", "storePathRootDir=/b", "readOnlyCommitLogStorePaths=/c"]
    config = BrokerConfig({"useSeparateStorePathForRocksdbCQ": "true"}, ("--broker-config", "FILE")).with_set(places)
    found = config.for_new_store()
    assert dict(found) == {"useSeparateStorePathForRocksdbCQ": "true"}
    assert found.words == ("--set", "useSeparateStorePathForRocksdbCQ=true")


@pytest.mark.parametrize("setting", ["a", "=1", "", " =1"])
def test_a_setting_needs_a_name_and_a_value(setting: str) -> None:
    with pytest.raises(InvalidInput, match="NAME=VALUE"):
        BrokerConfig().with_set([setting])


def test_the_case_of_a_store_type_does_not_count() -> None:
    """As in `MessageStoreConfig.isEnableRocksDBStore` and `CombineConsumeQueueStore.getInnerStoreByString`."""
    assert BrokerConfig({"storeType": "DEFAULTROCKSDB"})["storeType"] == "defaultRocksDB"
    hybrid = BrokerConfig({"combineCQPreferCQType": "defaultrocksdb", "combineAssignOffsetCQType": "Default"})
    assert (hybrid["combineCQPreferCQType"], hybrid["combineAssignOffsetCQType"]) == ("defaultRocksDB", "default")
    assert BrokerConfig().with_set(["storeType=defaultrocksdb"])["storeType"] == "defaultRocksDB"


def test_sizes_say_where_they_come_from() -> None:
    config = BrokerConfig({"mapedFileSizeCommitLog": "8192"})
    assert config.size("mappedFileSizeCommitLog") == (8192, "configuration")
    assert config.size("maxIndexNum") == (20_000_000, "default")


@pytest.mark.parametrize("value", ["0", "-1", "8k", "", "1.5"])
def test_a_size_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput, match="mappedFileSizeCommitLog"):
        BrokerConfig({"mappedFileSizeCommitLog": value}).size("mappedFileSizeCommitLog")


def test_values_have_types() -> None:
    config = BrokerConfig({"on": "TRUE", "off": "yes", "dirs": "/a,/b;/c:/d,"})
    assert config.get_bool("on") and not config.get_bool("off") and config.get_bool("none", True)
    assert config.get_paths("dirs") == ["/a", "/b", "/c", "/d"]
    assert config.get_paths("none") == []
    assert config.with_set(["rocketmq.broker.multiPathSplitter=;"]).get_paths("dirs") == ["/a,/b", "/c:/d,"]
    assert config.get_int("none", 5) == 5


@pytest.mark.parametrize(
    ("text", "why"), [("2147483648", "is not in -2147483648 to 2147483647"), ("1k", "is not a num")]
)
def test_numbers_that_a_broker_does_not_take(text: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=f"^maxIndexNum {why}"):
        BrokerConfig({"maxIndexNum": text}).get_int("maxIndexNum")


@pytest.mark.parametrize(
    ("log", "read_only", "read", "unread"),
    [
        ("/a,/b", "/c,/d", "/a /b /c /d", ""),
        ("/a,", "/c", "/a /c", ""),
        ("/a", "/c", "/a", "/c"),
        ("", "/c", "", "/c"),
        ("/a", "/a", "/a", ""),
    ],
)
def test_directories_that_are_only_read_count_beside_several(log: str, read_only: str, read: str, unread: str) -> None:
    """As in the real classes, which ask for the separator in the text."""
    config = BrokerConfig({"storePathCommitLog": log, "readOnlyCommitLogStorePaths": read_only})
    assert (config.log_paths, config.unread_log_paths) == (read.split(), unread.split())


@pytest.mark.parametrize(("log", "splitter"), [("/a:/b", ":"), ("/a;/b", ";"), ("/a,/b;/c", ";"), ("/a,/b", "")])
def test_brokers_split_at_a_comma(log: str, splitter: str) -> None:
    config = BrokerConfig({"storePathCommitLog": log})
    assert (f"only at a comma, not at {splitter}," in config.unsplit_log_paths) == bool(splitter)
    assert not config.with_set([f"rocketmq.broker.multiPathSplitter={splitter}"]).unsplit_log_paths


def test_a_directory_with_such_a_name_is_one(tmp_path: Path) -> None:
    log, more = tmp_path / "a:b;c", str(tmp_path / "a:d")
    log.mkdir()
    config = BrokerConfig({"storePathCommitLog": str(log), "readOnlyCommitLogStorePaths": "/r"})
    assert (config.log_paths, config.unread_log_paths, config.unsplit_log_paths) == ([str(log)], ["/r"], "")
    config = BrokerConfig({"storePathCommitLog": f"{log},{more}", "readOnlyCommitLogStorePaths": "/r"})
    assert (config.log_paths, config.unsplit_log_paths) == ([str(log), more, "/r"], "")


@pytest.mark.parametrize(
    ("version", "options", "elsewhere", "doubt"),
    [
        ("4.3", {"storePathRootDir": "{}"}, "brokers before 4.9.4 read $HOME/store/commitlog", "$HOME"),
        ("4.9.3", {"storePathRootDir": "{}"}, "brokers before 4.9.4", "$HOME"),
        ("4.9.4", {"storePathRootDir": "{}"}, "", ""),
        ("4.9", {"storePathRootDir": "{}"}, "", ""),  # of any release
        ("4.3", {"storePathRootDir": "{}", "storePathCommitLog": "{}/commitlog"}, "", ""),
        ("4.3", {"storePathRootDir": "/srv/x/store"}, "", "only with the home directory /srv/x is it the log"),
        ("4.9.1", {"storePathCommitLog": "{}/a,{}/b"}, "do not split storePathCommitLog at a comma", ""),
        ("4.9.2", {"storePathCommitLog": "{}/a,{}/b"}, "", ""),
        ("5.3", {"storePathRootDir": "/gone"}, "", "is for that broker with this store as its root"),
        ("5.3", {"storePathRootDir": "/gone", "storePathCommitLog": "/gone/commitlog"}, "", "as its root"),
        ("5.3", {"storePathRootDir": "/gone", "storePathCommitLog": "{}/log"}, "with storePathRootDir=/gone a ", "as"),
        ("5.3", {"storePathRootDir": "store"}, "", ""),  # nobody knows where that broker is started
    ],
)
def test_a_broker_whose_root_or_log_is_another(
    version: str, options: dict[str, str], elsewhere: str, doubt: str, tmp_path: Path
) -> None:
    """A real 4.3.1 with storePathRootDir alone reads $HOME/store/commitlog; a real 5.1.4 with another root has no
    queue of this log.
    """
    root = tmp_path / "data"
    text = "".join(f"{name}={value.replace('{}', str(root))}\n" for name, value in options.items())
    config = BrokerConfig.from_bytes(text.encode(), "broker.conf", file_rules_of(version))
    found = config.log_elsewhere(root)
    assert (elsewhere in found) if elsewhere else not found
    assert (doubt in config.doubt_about_log(root)) if doubt else not config.doubt_about_log(root)
    named = config.with_set([f"storePathRootDir={root}", f"storePathCommitLog={root}/commitlog"])
    assert not named.log_elsewhere(root) and not named.doubt_about_log(root)
    assert not BrokerConfig(dict(config)).doubt_about_log(root)  # single options leave the rest to the store


def test_reads_a_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(b"brokerName = caf\xe9\nmaxIndexNum=400\n")
    config = BrokerConfig.from_file(path)
    assert (config["brokerName"], config.get_int("maxIndexNum")) == ("café", 400)


def test_what_a_file_does_not_name_is_the_default_of_brokers(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("enableLmq=true\n")
    config = BrokerConfig.from_file(path).with_set(["useSeparateStorePathForRocksdbCQ=true"])
    assert (config["storeType"], config["rocksdbCQDoubleWriteEnable"], config["enableLmq"]) == (
        "default",
        "false",
        "true",
    )
    assert config["useSeparateStorePathForRocksdbCQ"] == "true"
    assert config.words == ("--broker-config", str(path), "--set", "useSeparateStorePathForRocksdbCQ=true")
    assert config.size("mappedFileSizeCommitLog") == (1 << 30, "default"), "files tell"
    new = config.for_new_store()
    assert (new["storeType"], new.words[:2]) == ("default", ("--set", "enableLmq=true"))
    assert "enableDLegerCommitLog" not in config.for_other_store(), "what is there tells"
    assert "storeType" not in BrokerConfig({"enableLmq": "true"})


def test_refuses_what_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(Missing):
        BrokerConfig.from_file(tmp_path / "none")
    with pytest.raises(Unreadable):
        BrokerConfig.from_file(tmp_path)
    log = tmp_path / "00000000000000000000"
    log.write_bytes(b"a\0b")
    with pytest.raises(InvalidInput):
        BrokerConfig.from_file(log)
    with log.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(LimitExceeded):
        BrokerConfig.from_file(log)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("\\\n! 0n:", {}),
        ("\\\n\n#x\nb=1", {"b": "1"}),
        ("a=1\\\n#x", {"a": "1#x"}),
        ("\\", {"": ""}),
        ("#:\n\\\n", {"": ""}),
        ("\\\r\n", {}),
    ],
)
def test_lines_that_go_on_with_nothing(text: str, options: dict[str, str]) -> None:
    """As java.util.Properties reads them."""
    assert parse_properties(text) == options


LOG_BYTES, SLOTS = "mappedFileSizeCommitLog", "maxHashSlotNum"
GIGABYTE = 1 << 30
KINDS = {
    **dict.fromkeys((LOG_BYTES, "mappedFileSizeConsumeQueue", SLOTS, "fileReservedTime"), "int"),
    **dict.fromkeys(("storeType", "storePathCommitLog", "deleteWhen"), "String"),
    **dict.fromkeys(("enableDLegerCommitLog", "messageIndexEnable"), "boolean"),
    "brokerRole": "BrokerRole",
}
ODD: list[tuple[Any, ...]] = [
    (b"mappedFileSizeCommitLog=8192", LOG_BYTES, GIGABYTE, 8192, 8192),
    (b"mapedFileSizeCommitLog=8192", LOG_BYTES, 8192, GIGABYTE, GIGABYTE),
    (b"mappedFileSizeCommitLog=8192\nmapedFileSizeCommitLog=400", LOG_BYTES, 400, 8192, 8192),
    (b"mapedFileSizeCommitLog=400\nmappedFileSizeCommitLog=8192", LOG_BYTES, 400, 8192, 8192),
    (b"mapedFileSizeCommitLog=400\nmappedFileSizeCommitLog=8192 ", LOG_BYTES, 400, GIGABYTE, GIGABYTE),
    (b"mapedFileSizeConsumeQueue=400", "mappedFileSizeConsumeQueue", 400, 6_000_000, 6_000_000),
    (b"MaxHashSlotNum=7\nmaxhashslotnum=8", SLOTS, None, None, None),
    *((b"maxHashSlotNum=" + text, SLOTS, *[5_000_000] * 3) for text in (b"97 ", b"97\t", b"\\ 97", b"9_7", b"0x61")),
    *((b"maxHashSlotNum=" + text, SLOTS, *[5_000_000] * 3) for text in (b"97L", b"", b"2147483648", b"+", b"9.7e1")),
    *((b"maxHashSlotNum=" + text, SLOTS, *[97] * 3) for text in (b"+97", b"  97", b"0097", b"9\\\n  7", b"\\u0039\\7")),
    (b"maxHashSlotNum=\\u0669\\u0667", SLOTS, 97, 97, 97),
    (b"maxHashSlotNum=-2147483648", SLOTS, *[-(1 << 31)] * 3),
    (b"maxHashSlotNum=97\nmaxHashSlotNum=x", SLOTS, *[5_000_000] * 3),
    (b"maxHashSlotNum=x\nmaxHashSlotNum:97", SLOTS, 97, 97, 97),
    (b"fileReservedTime=48 ", "fileReservedTime", None, None, None),
    (b"storeType=defaultRocksDB ", "storeType", None, "defaultRocksDB ", "defaultRocksDB"),
    (b"storeType=a\\u3000\xa0", "storeType", None, *["a\u3000\xa0"] * 2),
    (b"storeType=", "storeType", None, "", ""),
    (b"storePathCommitLog=/x\\t \\u0001", "storePathCommitLog", *["/x\t \x01"] * 2, "/x"),
    (b"storePathCommitLog=/\xc3\xa9", "storePathCommitLog", *["/\xc3\xa9"] * 3),
    (b"deleteWhen=04;16 ", "deleteWhen", "04;16 ", "04;16 ", "04;16"),
    *((b"messageIndexEnable=" + text, "messageIndexEnable", *[False] * 3) for text in (b"true ", b"yes", b"1", b"")),
    (b"enableDLegerCommitLog=TrUe", "enableDLegerCommitLog", None, True, True),
    (b"enableDLegerCommitLog=true ", "enableDLegerCommitLog", None, False, False),
    (b"brokerRole=SLAVE", "brokerRole", *["SLAVE"] * 3),
    (b"brokerRole=SLAVE ", "brokerRole", None, None, "SLAVE"),
    (b"brokerRole=slave", "brokerRole", None, None, None),
]
"""What is written, an option, and its value to brokers of 4.3, up to 5.1, and newer; None: the default, or no option.

Measured with the real classes, see the tests of the same name in `interop`.
"""


def taken(config: BrokerConfig, option: str) -> object:
    """The value of an option, None where it is not set."""
    if KINDS[option] == "int":
        return config.get_int(option)
    return config.get_bool(option) if KINDS[option] == "boolean" else config.get(option)


@pytest.mark.parametrize(("written", "option", "first", "middle", "newest"), ODD)
def test_values_are_those_that_brokers_take(
    written: bytes, option: str, first: object, middle: object, newest: object, tmp_path: Path
) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(written)
    for version, wanted in {"4.3.1": first, "4.9.7": middle, "5.1.4": middle, "5.3.3": newest}.items():
        if wanted is not None or version > "4.5":
            assert taken(BrokerConfig.from_file(path, file_rules_of(version)), option) == wanted, version


@pytest.mark.parametrize(
    ("written", "rules", "why"),
    [
        (b"mappedFileSizeCommitLog=8192 ", FileRules(), "not a number for brokers (the blank counts)"),
        (b"fileReservedTime=4_8", FileRules(), "not a number for brokers: the default is used"),
        (b"mapedFileSizeCommitLog=8192", FileRules(old_names=False), "use mappedFileSizeCommitLog instead: 1073741824"),
        (b"mapedFileSizeCommitLog=8192", FileRules(), "brokers since 4.5.2 use mappedFileSizeCommitLog instead"),
        (b"mapedFileSizeCommitLog=8192\nmappedFileSizeCommitLog=9", FileRules(), "instead: 9 is used"),
        (b"storeType=a ", FileRules(strips=False), "brokers before 5.2 keep the blank"),
        (b"storeType=a ", FileRules(), "brokers before 5.2 keep the blank"),
        (b"storeType=a ", FileRules(strips=True), ""),
        (b"enableLmq=true ", FileRules(strips=True), "false to brokers (the blank counts)"),
        (b"brokerRole=slave", FileRules(), "the default is used, ASYNC_MASTER"),
        (b"storePathCommitLog=/\xc3\xa9", FileRules(), "ISO-8859-1, not UTF-8"),
        (b"storePathCommitLog=/\xe9\\u4e2d", FileRules(), ""),
        (b"maxIndexNum=400", FileRules(), ""),
    ],
)
def test_what_is_not_taken_is_told(written: bytes, rules: FileRules, why: str, tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(written)
    config = BrokerConfig.from_file(path, rules)
    assert len(config.untaken) == bool(why) and why in "".join(config.untaken.values())
    (name,) = config.untaken or ["a"]
    assert not config.with_set([f"{name}=1"]).untaken, "that is exact"


def test_no_broker_starts_with_a_malformed_escape(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(b"#\\u\na=\\\\u")
    assert BrokerConfig.from_file(path)["a"] == "\\u"
    path.write_bytes(b"a=\\u00zz")
    with pytest.raises(InvalidInput, match="hexadecimal"):
        BrokerConfig.from_file(path)


def test_no_number_is_asked_for_that_a_file_may_not_have() -> None:
    """Options that are asked for as numbers are known as such: a value that is none is not there for brokers."""
    store = Path(broker_conf.__file__).parents[1]
    asked = {name for path in store.rglob("*.py") for name in re.findall(r'get_int\("(\w+)"', path.read_text())}
    assert asked and asked <= broker_conf._INT_OPTIONS


def test_a_pipe_gives_its_text_once_and_it_is_read_again() -> None:
    """As that of `--broker-config <(…)`, which a command asks more than once."""
    reader, writer = os.pipe()
    os.write(writer, b"storeType=defaultRocksDB")
    os.close(writer)
    try:
        found = [BrokerConfig.from_file(f"/dev/fd/{reader}")["storeType"] for _ in range(2)]
    finally:
        os.close(reader)
    assert found == ["defaultRocksDB"] * 2
