"""BrokerConfig: Java properties, RocketMQ's names in both spellings, overrides."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.disk.broker_conf import BrokerConfig, parse_properties
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
    assert (f"at a comma alone, not at {splitter}," in config.unsplit_log_paths) == bool(splitter)
    assert not config.with_set([f"rocketmq.broker.multiPathSplitter={splitter}"]).unsplit_log_paths


def test_a_directory_with_such_a_name_is_one(tmp_path: Path) -> None:
    log, more = tmp_path / "a:b;c", str(tmp_path / "a:d")
    log.mkdir()
    config = BrokerConfig({"storePathCommitLog": str(log), "readOnlyCommitLogStorePaths": "/r"})
    assert (config.log_paths, config.unread_log_paths, config.unsplit_log_paths) == ([str(log)], ["/r"], "")
    config = BrokerConfig({"storePathCommitLog": f"{log},{more}", "readOnlyCommitLogStorePaths": "/r"})
    assert (config.log_paths, config.unsplit_log_paths) == ([str(log), more, "/r"], "")


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
    assert "enableDLegerCommitLog" not in config.of_another_store(), "what is there tells"
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
