"""Targets that look at text: configuration, expressions of the user, NDJSON, journals."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

from mqstore.cli.ndjson_input import read_portions
from mqstore.formats.quick import message_id, parse_message_id
from mqstore.store.broker import topics as config_json
from mqstore.store.broker.topics import Topics
from mqstore.store.disk.broker_conf import BrokerConfig, parse_properties
from mqstore.store.disk.files import Files, confine
from mqstore.store.disk.layout import Layout
from mqstore.store.put.message_columns import columns_of
from mqstore.store.put.message_json import MessageReader, parse_host
from mqstore.store.put.new_message import UniqueKeys
from mqstore.store.search.selection import matches, parse_range, parse_time
from mqstore.store.session.journal import JOURNAL, SEALED, Journal
from mqstore.store.session.undo import list_sessions, purge, undo
from mqstore.store.settings.read import read_progress

from .target import cut, files, target

_NOW_MS = 1_700_000_000_000


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


@target
def properties_file(data: bytes) -> None:
    """broker.conf: Java's properties, and the options a store is opened with."""
    options = parse_properties(data.decode("iso-8859-1"))
    assert all(isinstance(value, str) for pair in options.items() for value in pair)
    config = BrokerConfig(options)
    for name in ("mappedFileSizeCommitLog", *list(options)[:3]):
        config.get_bool(name)
        config.get_paths(name)
        config.with_set([f"{name}=1"] if name.strip() and "=" not in name else [])
    config.size("mappedFileSizeCommitLog")


@target
def config_files(data: bytes) -> None:
    """JSON as fastjson writes it: read, written and read again it is the same."""
    with contextlib.suppress(ValueError, RecursionError):
        value = config_json.loads(_text(data))
        again = config_json.loads(config_json.dumps(value))
        assert again == value or "NaN" in _text(data)
    with files({"topics.json": data, "consumerOffset.json": data}) as root:
        read_progress(root)
        topics = Topics.read(root)
        for topic in ("T", "TopicTest"):
            topics.queues(topic)
            topics.attribute(topic, "queue.type")


@target
def times(data: bytes) -> None:
    """--since, --until: a number of milliseconds, or an error."""
    since, until = cut(data, 2)
    found = parse_time(_text(until), _NOW_MS)
    assert isinstance(found, int)
    span = parse_range(_text(since), _text(until), _NOW_MS)
    assert span.since_ms <= span.until_ms


@target
def message_ids(data: bytes) -> None:
    """An id comes back as it was."""
    text = _text(data)
    with contextlib.suppress(ValueError):
        found = parse_message_id(text)
        assert parse_message_id(message_id(*found)) == found
        assert message_id(*found) == "".join(text.split()).upper()
    parse_host(text, "--store-host")


@target
def patterns(data: bytes) -> None:
    """--topic: a name with wildcards against a name."""
    name, pattern = cut(data, 2)
    assert matches(_text(name), _text(name)) or any(c in _text(name) for c in "*?[")
    matches(_text(name), _text(pattern))


@target
def put_lines(data: bytes) -> None:
    """NDJSON for put --from: a message or an error of the input, and its columns."""
    with files({"lines": data}) as root:
        reader = MessageReader(UniqueKeys(bytes(4), lambda: _NOW_MS), keep_times=True, clock=lambda: _NOW_MS)
        for portion in read_portions(str(root / "lines")):
            made = [reader.message(line.record) for line in portion]
            columns = columns_of(made)
            assert len(columns["topic"]) == len(made)


_SESSION = "20260101T000000.000000Z"


@target
def journals(data: bytes) -> None:
    """A sealed journal of any content: nothing outside the store changes."""
    folder = f"store/.mqstore/{_SESSION}"
    seal = hashlib.sha256(data).hexdigest().encode()
    content = {f"{folder}/{JOURNAL}": data, f"{folder}/{SEALED}": seal, f"{folder}/done": b"{}"}
    kept = {f"{folder}/000000.{kind}": b"kept" for kind in ("old", "new", "moved")}
    store = {"store/checkpoint": bytes(64), "store/commitlog/x": b"", "victim": b"precious"}
    with files(content | kept | store) as root:
        layout = Layout.open(root / "store")
        changing = Files()
        confine(changing, layout)
        try:
            list(list_sessions(layout))
            journal = Journal.load(layout.root, root / folder)
            undo(layout, journal, changing, force=True)
            purge(layout, journal, changing)
        finally:
            assert (root / "victim").read_bytes() == b"precious"
            assert {path.name for path in Path(root).iterdir()} == {"store", "victim"}


def planted(**fields: object) -> bytes:
    """A journal of one step, for the corpus."""
    step = {
        "number": 0,
        "kind": "write",
        "path": "checkpoint",
        "folder": f".mqstore/{_SESSION}",
        "reason": "",
        "offset": 0,
        "length": 4,
        "zeros": False,
        "old_sha256": hashlib.sha256(b"kept").hexdigest(),
        "new_sha256": hashlib.sha256(b"kept").hexdigest(),
        "before": dict.fromkeys(("mode", "owner", "group", "accessed_ns", "modified_ns", "size"), 0),
    }
    journal = {"format": 1, "command": "recover", "directories": [], "steps": [step | fields]}
    return json.dumps(journal).encode()
