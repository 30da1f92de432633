"""`mqstore get`: every address, every format, what excludes what, and that it writes nothing."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..stores import messages
from .datadriven import run_here
from .printed import get

NAME = "5.3.3-clean"
Record = dict[str, Any]


@pytest.fixture
def root(store: Callable[[str], Path]) -> Path:
    return store(NAME)


@pytest.fixture(scope="module")
def known() -> list[Record]:
    return list(messages(NAME))


def records(root: Path, *options: str) -> list[Record]:
    """What `get` finds, as records."""
    result = get(root, *options, "--format", "ndjson")
    assert result.code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def offsets(root: Path, *options: str) -> list[int]:
    return [record["physical_offset"] for record in records(root, *options)]


def test_one_message_by_every_address(root: Path, known: list[Record]) -> None:
    wanted = next(r for r in known if r["topic"] == "orders" and r["queue_offset"] == 3)
    place = ["--topic", "orders", "--queue", str(wanted["queue_id"]), "--offset", "3"]
    [one] = records(root, *place)
    assert one["properties"] == wanted["properties"]
    assert one["message_id"] == wanted["offset_msg_id"]
    assert one["physical_offset"] == wanted["physical_offset"]
    assert records(root, "--at", str(one["physical_offset"])) == [one]
    assert records(root, "--message-id", one["message_id"]) == [one]
    by_key = records(root, "--unique-key", one["unique_key"])
    assert by_key == [one | {"found_by": "index"}]
    assert records(root, "--topic", "orders", "--key", one["unique_key"]) == by_key


def test_count_limit_and_reverse(root: Path, known: list[Record]) -> None:
    every = [r["physical_offset"] for r in known if (r["topic"], r["queue_id"]) == ("orders", 0)]
    queue = ["--topic", "orders", "--queue", "0"]
    assert offsets(root, *queue) == every
    assert offsets(root, *queue, "--reverse") == every[::-1]
    assert offsets(root, *queue, "--offset", "2", "--count", "4") == every[2:6]
    assert offsets(root, *queue, "--offset", "2", "--count", "4", "--reverse") == every[2:6][::-1]
    assert offsets(root, *queue, "--count", "4", "--reverse", "--limit", "2") == [every[3], every[2]]
    assert offsets(root, *queue, "--limit", "2") == every[:2]
    assert offsets(root, *queue, "--reverse", "--limit", "2") == every[:-3:-1]
    topic = [r["physical_offset"] for r in known if r["topic"] == "orders"]
    assert offsets(root, "--topic", "orders") == topic
    assert offsets(root, "--topic", "orders", "--reverse", "--limit", "5") == topic[:-6:-1]
    more = str(10**30)
    assert offsets(root, *queue, "--offset", "2", "--count", more, "--limit", more) == every[2:]
    assert offsets(root, "--topic", "orders", "--count", more, "--reverse") == topic[::-1]


def test_times_are_from_since_to_before_until(root: Path, known: list[Record]) -> None:
    stored = sorted({r["store_timestamp"] for r in known})
    since, until = stored[20], stored[40]
    expected = [r["physical_offset"] for r in known if since <= r["store_timestamp"] < until]
    assert offsets(root, "--since", str(since), "--until", str(until)) == expected
    orders = [r["physical_offset"] for r in known if r["topic"] == "orders"]
    both = [position for position in expected if position in orders]
    bounds = ["--since", str(since), "--until", str(until)]
    assert offsets(root, "--topic", "orders", *bounds) == both


def test_where(root: Path, known: list[Record]) -> None:
    """Every way to the messages takes the condition."""
    expected = [
        r["physical_offset"]
        for r in known
        if "KEYS" in r["properties"] and r["properties"].get("TAGS") != "TagA" and r["queue_id"] < 2
    ]
    where = ["--where", "KEYS IS NOT NULL AND (TAGS <> 'TagA' OR TAGS IS NULL) AND @queue_id < 2"]
    assert expected
    assert offsets(root, *where) == expected
    assert offsets(root, *where, "--reverse", "--limit", "3") == expected[:-4:-1]
    orders = [r["physical_offset"] for r in known if r["topic"] == "orders"]
    assert offsets(root, *where, "--topic", "orders") == [p for p in expected if p in orders]
    first = str(expected[0])
    assert offsets(root, "--at", first, *where) == [expected[0]]
    assert get(root, "--at", first, "--where", "KEYS IS NULL").code == 1
    assert get(root, "--where", "TAGS > 5").code == 1


def test_one_of_several_tags(root: Path, known: list[Record]) -> None:
    for tags, meant in (("TagA||TagB", {"TagA", "TagB"}), (" nope || TagB ", {"TagB"})):
        wanted = [r for r in known if r["properties"].get("TAGS") in meant]
        assert offsets(root, "--tag", tags) == [r["physical_offset"] for r in wanted]
        orders = [r["physical_offset"] for r in wanted if r["topic"] == "orders"]
        assert offsets(root, "--tag", tags, "--topic", "orders") == orders
    everything = [r["physical_offset"] for r in known]
    assert offsets(root, "--tag", "*") == everything


@pytest.mark.parametrize("code", [0, 2598920], ids=["none", "another tag's"])
def test_a_message_whose_unit_has_another_tags_code(code: int, root: Path, known: list[Record]) -> None:
    """A tag is that of the record: what a unit says of it may be wrong."""
    wanted = [r["physical_offset"] for r in known if r["topic"] == "orders" and r["properties"].get("TAGS") == "TagA"]
    with (root / "consumequeue" / "orders" / "0" / f"{0:020}").open("r+b") as file:
        file.seek(21 * 20 + 12)
        assert int.from_bytes(file.read(8), "big") == 2598919
        file.seek(21 * 20 + 12)
        file.write(code.to_bytes(8, "big"))
    assert offsets(root, "--topic", "orders", "--tag", "TagA") == wanted
    assert offsets(root, "--topic", "orders", "--queue", "0", "--tag", "TagA", "--reverse")[0] in wanted[-8:]
    assert offsets(root, "--topic", "orders", "--queue", "0", "--offset", "21", "--tag", "TagA")


def test_count_is_of_messages_that_are_wanted(root: Path, known: list[Record]) -> None:
    """Of all queues together, and of those that have the tag or the time; in their order."""
    topic = [r for r in known if r["topic"] == "orders"]
    every = [r["physical_offset"] for r in topic]
    assert offsets(root, "--topic", "orders", "--count", "3") == every[:3]
    assert offsets(root, "--topic", "orders", "--count", "3", "--reverse") == every[:3][::-1]
    queue = [r for r in topic if r["queue_id"] == 0]
    tagged = [r for r in queue if r["properties"].get("TAGS") == "TagA"]
    assert len(tagged) > 2 and tagged[1]["queue_offset"] > 1
    place = ["--topic", "orders", "--queue", "0"]
    wanted = [r["physical_offset"] for r in tagged[:2]]
    assert offsets(root, *place, "--tag", "TagA", "--count", "2") == wanted
    assert offsets(root, *place, "--tag", "TagA", "--count", "2", "--reverse") == wanted[::-1]
    later = [r["physical_offset"] for r in tagged[1:3]]
    assert offsets(root, *place, "--tag", "TagA", "--offset", "1", "--count", "2") == later
    late = queue[len(queue) // 2 :]
    since = ["--since", str(late[0]["store_timestamp"]), "--count", "2"]
    times = [r for r in queue if r["store_timestamp"] >= late[0]["store_timestamp"]]
    assert offsets(root, *place, *since) == [r["physical_offset"] for r in times[:2]]


def test_topics_by_pattern(root: Path, known: list[Record]) -> None:
    for pattern, meant in (("o*", "orders"), ("T[%]*", "T%a|b_c-D"), ("orde?s", "orders")):
        wanted = [r for r in known if r["topic"] == meant]
        assert wanted
        assert offsets(root, "--topic", pattern) == [r["physical_offset"] for r in wanted], pattern
    queue = [r["physical_offset"] for r in known if (r["topic"], r["queue_id"]) == ("orders", 1)]
    assert offsets(root, "--topic", "o*", "--queue", "1") == queue
    assert offsets(root, "--topic", "o*", "--queue", "1", "--count", "2") == queue[:2]
    keyed = next(r for r in known if r["topic"] == "orders" and "KEYS" in r["properties"])
    key = keyed["properties"]["KEYS"].split(" ")[0]
    assert offsets(root, "--topic", "o*", "--key", key) == offsets(root, "--topic", "orders", "--key", key)
    assert get(root, "--topic", "x*").code == 1


def test_tag_and_grep(root: Path, known: list[Record]) -> None:
    expected = [r["physical_offset"] for r in known if r["properties"].get("TAGS") == "TagB"]
    assert offsets(root, "--tag", "TagB") == expected
    found = records(root, "--topic", "orders", "--grep", r"^hello #\d+$")
    assert found and all(re.fullmatch(r"hello #\d+", r["body"]) for r in found)
    assert found == [r for r in records(root, "--topic", "orders") if re.fullmatch(r"hello #\d+", r.get("body", ""))]


def test_compressed_bodies_come_out_decompressed(root: Path, known: list[Record]) -> None:
    packed = next(r for r in known if "body_sha1_decompressed" in r)
    [shown] = records(root, "--at", str(packed["physical_offset"]))
    assert shown["body_compression"] == "zlib"
    body = run_bytes(root, "--at", str(packed["physical_offset"]), "--format", "body")
    assert body == body_of(shown)
    [raw] = records(root, "--at", str(packed["physical_offset"]), "--raw")
    stored = run_bytes(root, "--at", str(packed["physical_offset"]), "--format", "body", "--raw")
    assert base64.b64decode(raw["body_base64"]) == stored != body
    [small] = records(root, "--at", str(packed["physical_offset"]), "--max-body", "10")
    assert "body_error" in small


def test_a_body_that_is_printed_as_stored_is_told(root: Path, known: list[Record], tmp_path: Path) -> None:
    """Bytes alone do not show that they are not the message."""
    packed = next(r for r in known if "body_sha1_decompressed" in r)["physical_offset"]
    place = ["--at", str(packed), "--format", "body"]
    stored = run_bytes(root, *place, "--raw")
    done = run_program(root, *place, "--max-body", "10")
    assert done.stdout == stored
    what = f"mqstore: the body of the message at {packed}"
    printed = "the stored bytes are printed"
    assert done.stderr.decode() == f"{what} decompresses with zlib to more than 10 bytes (--max-body); {printed}\n"
    assert run_program(root, *place).stderr == run_program(root, *place, "--raw").stderr == b""
    cut = {"topic": "T", "body_base64": base64.b64encode(stored[:-5]).decode(), "sys_flag": 1, "body_error": "cut"}
    lines = [cut, {"topic": "T", "body": "plain", "body_crc_ok": False}]
    source, new = tmp_path / "in.ndjson", tmp_path / "new"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run_here(["put", str(new), "--from", str(source), "--on-damage", "mark"]).code == 1
    second = records(new, "--topic", "T")[1]["physical_offset"]
    done = run_program(new, "--topic", "T", "--format", "body")
    assert done.stdout == stored[:-5] + b"plain"
    told = [line.removeprefix("mqstore: the body of the message at ") for line in done.stderr.decode().splitlines()]
    assert told == [f"0 does not decompress with zlib: the stream is cut; {printed}", f"{second} failed its checksum"]
    addresses = tmp_path / "ids.txt"
    addresses.write_text("0\n")
    done = run_program(new, "--addresses", str(addresses), "--format", "body")
    assert (done.stdout, done.stderr.decode().count(printed)) == (stored[:-5], 1)


def test_a_compression_that_clients_do_not_know(tmp_path: Path) -> None:
    """Shown as stored, reported, and copied byte for byte."""
    body = base64.b64encode(zlib.compress(b"body")).decode()
    source, new, copy = tmp_path / "in.ndjson", tmp_path / "new", tmp_path / "copy"
    source.write_text(json.dumps({"topic": "T", "body_base64": body, "sys_flag": 0x401, "raw": True, "properties": {}}))
    assert run_here(["put", str(new), "--from", str(source)]).code == 0
    [shown] = records(new, "--topic", "T")
    error = "has the compression type 4, which clients do not know"
    assert (shown["body_base64"], shown["body_error"]) == (body, error)
    assert "body_compression" not in shown
    assert get(new, "--topic", "T", "--grep", "body").code == 1
    found = run_here(["verify", str(new)])
    assert found.code == 1 and "I-039" in found.stdout and error in found.stdout
    source.write_text(json.dumps(shown))
    assert run_here(["put", str(copy), "--from", str(source)]).code == 0
    assert (shown | {"store_timestamp": 0}) == (records(copy, "--topic", "T")[0] | {"store_timestamp": 0})


def body_of(record: Record) -> bytes:
    if "body" in record:
        return str(record["body"]).encode()
    return base64.b64decode(record["body_base64"])


def run_bytes(root: Path, *options: str) -> bytes:
    """stdout of the program itself."""
    return run_program(root, *options).stdout


def run_program(root: Path, *options: str) -> subprocess.CompletedProcess[bytes]:
    source = Path(__file__).parents[2] / "src"
    return subprocess.run(
        [sys.executable, "-m", "mqstore", "get", str(root), *options],
        capture_output=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(source)},
        timeout=60,
    )


def test_formats(root: Path) -> None:
    place = ["--topic", "orders", "--queue", "0", "--offset", "0", "--count", "2"]
    [first, second] = records(root, *place)
    assert json.loads(get(root, *place, "--format", "json").stdout) == [first, second]
    rows = list(csv.DictReader(io.StringIO(get(root, *place, "--format", "csv").stdout)))
    assert [row["message_id"] for row in rows] == [first["message_id"], second["message_id"]]
    text = get(root, *place).stdout.splitlines()
    assert len(text) == 2 and "orders/0 @0" in text[0]
    only = get(root, *place, "--fields", "queue_offset,topic", "--format", "ndjson").stdout
    assert only.splitlines()[1] == '{"queue_offset":1,"topic":"orders"}'
    hex_view = get(root, *place, "--format", "hex").stdout
    assert hex_view.count("total_size") == 2 and "daa320a7" in hex_view.replace(" ", "")
    assert run_bytes(root, *place, "--format", "body") == body_of(first) + body_of(second)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("", "nothing was asked for"),
        ("--at 0 --key k", "--at and --key cannot be combined"),
        ("--topic orders --offset 1", "--offset needs"),
        ("--queue 1", "--queue needs --topic"),
        ("--at 0 --count 2", "--count needs a queue"),
        ("--grep (", "--grep: not a regular expression"),
        ("--since never", "not a time"),
        ("--since now --until -1h", "later"),
        ("--message-id xyz", "xyz"),
        ("--offset-at 0", "--offset-at needs"),
        ("--topic orders --limit 0", "--limit"),
        ("--at -1", "--at"),
        ("--topic orders --fields nope --format csv", "nope"),
        ("--topic orders --set mappedFileSizeCommitLog=x", "mappedFileSizeCommitLog"),
        ("--at 0 --format hex --fields topic", "--format hex, which prints no fields"),
        ("--at 0 --format body --fields topic", "--format body, which prints no fields"),
        *(
            (
                f"--topic orders --queue 0 --offset-at 0 {option}",
                f"--offset-at and {option.split()[0]} cannot be combined",
            )
            for option in (
                *(
                    "--offset 0",
                    "--count 1",
                    "--at 0",
                    "--tag a",
                    "--key k",
                    "--unique-key a",
                    "--message-id a",
                    "--raw",
                ),
                *("--where a=1", "--grep a", "--since 0", "--until now", "--limit 1", "--reverse", "--max-body 1"),
            )
        ),
    ],
)
def test_wrong_usage_is_one_line_and_2(root: Path, options: str, says: str) -> None:
    result = get(root, *options.split())
    assert (result.code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1 and says in result.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--topic nope", "no such topic: nope"),
        ("--topic orders --queue 77", "no queue 77"),
        ("--topic orders --queue 0 --offset 99999", "it has 0 to"),
        ("--at 17", "no record begins here"),
        ("--at 999999999999", "no log file"),
        ("--topic orders --tag no-such-tag", "no such message"),
        ("--topic orders --since now", "no such message"),
        ("--message-id 7F00000100002A9F0000000000000011 -q", "no record begins here"),
        ("--topic ../config --queue 0 --offset 0", "no such topic"),
        ("--topic nope --queue 0 --offset-at 0", "no such topic"),
        ("--topic orders --key nope --quiet", "no such message"),
    ],
)
def test_not_found_is_one_line_and_1(root: Path, options: str, says: str) -> None:
    result = get(root, *options.split())
    assert (result.code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1 and says in result.stderr


def test_no_store_is_one_line_and_5(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    file = tmp_path / "file"
    file.write_bytes(b"")
    for path in (tmp_path / "none", tmp_path, loop, file):
        result = get(path, "--topic", "t")
        assert (result.code, result.stdout, len(result.stderr.splitlines())) == (5, "", 1)
        assert path.name in result.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "loop"]


@pytest.mark.parametrize(
    "options",
    [
        "--topic orders",
        "--topic orders --queue 0 --offset 0",
        "--topic orders --queue 0 --offset-at now",
        "--topic nope",
        "--at 0",
        "--key key1",
        "--message-id 7F00000100002A9F0000000000000011",
        "--since -1h",
        "--follow",
        "--addresses {root}/address",
    ],
)
def test_a_log_that_is_not_there_is_no_empty_one(root: Path, options: str) -> None:
    for file in (root / "commitlog").iterdir():
        file.unlink()
    (root / "address").write_text("0\n")
    result = get(root, *options.format(root=root).split())
    assert (result.code, result.stdout) == (5, "")
    assert "no commit log, but full queues: is the path wrong, or a disk not mounted?" in result.stderr
    assert run_here(["trace", str(root), "key1"]).code == run_here(["trace", str(root), "orders/0/0"]).code == 5


def odd_stores(root: Path) -> Iterator[str]:
    """The store with something odd in it, one thing more each time."""
    log = root / "commitlog"
    yield "as it was"
    (log / "notes.txt").write_bytes(b"x")
    (log / "00000000000000524288").write_bytes(b"")
    yield "a stray name and an empty last file"
    (root / "consumequeue" / "orders" / "0" / "foo").write_bytes(b"x")
    (root / "consumequeue" / "orders" / "x").mkdir()
    (root / "index" / "foo").write_bytes(b"x")
    (log / "123").write_bytes(bytes(262144))
    yield "names that are no numbers, a number that is no position"
    loop = log / "00000000000000786432"
    loop.symlink_to(loop)
    yield "a symlink loop"
    with (log / "00000000000000262144").open("r+b") as file:
        file.truncate(200_000)
    yield "files of several sizes"


def test_odd_stores_are_read_all_the_same(root: Path, known: list[Record]) -> None:
    expected = [r["physical_offset"] for r in known if r["topic"] == "orders"]
    for what in odd_stores(root):
        assert offsets(root, "--topic", "orders") == expected, what
        assert offsets(root, "--tag", "TagB", "--limit", "1"), what
        assert offsets(root, "--key", "key28"), what


def test_absurd_lengths_are_not_believed(root: Path, known: list[Record]) -> None:
    victim = known[5]
    with (root / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(victim["physical_offset"])
        file.write(b"\x7f\xff\xff\xff")
    result = get(root, "--at", str(victim["physical_offset"]))
    assert (result.code, len(result.stderr.splitlines())) == (1, 1)
    expected = [r["physical_offset"] for r in known if r is not victim]
    result = get(root, "--since", "0", "--until", "+1d", "--format", "ndjson")
    assert [json.loads(line)["physical_offset"] for line in result.stdout.splitlines()] == expected
    assert result.code == 0 and "1 damaged range" in result.stderr


def snapshot(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every entry with its size, time and content."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and status.st_size < 1 << 20 else b""
        found[str(path.relative_to(root))] = (status.st_size, status.st_mtime_ns, content)
    return found


def test_it_writes_nothing(root: Path) -> None:
    before = snapshot(root)
    for options in (
        ["--topic", "orders"],
        ["--topic", "orders", "--queue", "0", "--offset", "0"],
        ["--key", "nope"],
        ["--tag", "TagA", "--reverse"],
        ["--topic", "orders", "--queue", "0", "--offset-at", "now"],
        ["--at", "5"],
    ):
        get(root, *options)
    assert snapshot(root) == before


@pytest.mark.parametrize("address", ["--topic orders --queue 0 --offset 0", "--at 0"])
@pytest.mark.parametrize("output", [False, True])
def test_one_message_needs_no_heavy_imports(root: Path, tmp_path: Path, address: str, output: bool) -> None:
    code = (
        "import sys; from mqstore.cli.app import run; run(sys.argv[1:]); "
        "print({'construct', 'numpy', 'rich', 'lz4', 'zstandard', 'lark'} & set(sys.modules))"
    )
    place = f"get {root} {address} --format json".split()
    if output:
        place += ["--output", str(tmp_path / "message.json")]
    done = subprocess.run(
        [sys.executable, "-c", code, *place],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        timeout=60,
    )
    assert done.stdout.splitlines()[-1] == "set()"


def test_a_key_of_a_topic_that_was_deleted(root: Path, known: list[Record]) -> None:
    """A broker deletes its queues, its configuration and its offsets: without the topic the index cannot find it."""
    shutil.rmtree(root / "consumequeue" / "orders")
    for path in (root / "config").iterdir():
        path.unlink()
    every = [r for r in known if "BBBB" in r["properties"].get("KEYS", "").split(" ")]
    kept, deleted = ([r["physical_offset"] for r in every if (r["topic"] == "orders") is own] for own in (False, True))
    found = get(root, "--key", "BBBB", "--format", "ndjson", "--fields", "physical_offset")
    assert [json.loads(line)["physical_offset"] for line in found.stdout.splitlines()] == kept
    assert "`mqstore dump --key` also finds it in deleted ones" in found.stderr
    assert deleted and offsets(root, "--key", "BBBB", "--topic", "orders") == deleted
    gone = get(root, "--topic", "orders")
    assert gone.code == 1 and "mqstore dump --topic shows what the log still has" in gone.stderr


def test_symlink_loops_are_passed_over(root: Path) -> None:
    for place in ("consumequeue/loop", "consumequeue/orders/9", "index/20260101000000000", "odd"):
        loop = root / place
        loop.symlink_to(loop)
    for question in ("--topic orders --limit 1", "--key key28 --topic orders", "--topic orders --queue 0 --offset 3"):
        result = get(root, *question.split())
        assert (result.code, result.stderr) == (0, ""), question


def test_a_light_topic_by_every_way(store: Callable[[str], Path]) -> None:
    """Its messages were stored under another topic, which is what is printed."""
    root, light = store("5.3.3-lmq"), ("--topic", "%LMQ%a")
    expected = records(root, *light)
    assert {one["topic"] for one in expected} == {"mqtt"}
    assert records(root, "--topic", "%LMQ%a*") == expected
    assert records(root, *light, "--follow", "--since", "2026-11-01", "--limit", str(len(expected))) == expected
    assert records(root, *light, "--at", "291") == expected[:1]
    for path in (root, root / "commitlog"):
        dumped = run_here(["dump", str(path), *light, "--format", "ndjson"])
        assert [json.loads(line) for line in dumped.stdout.splitlines()] == expected
    traced = run_here(["trace", str(root), "key1", *light])
    assert traced.code == 0 and "mqtt/0/0" in traced.stdout
