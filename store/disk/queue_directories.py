"""The directories of topic-queues below `consumequeue` and its like (spec 02, 2.1)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import NotFound, from_os_error
from .file_queue import is_directory

LARGEST_QUEUE_ID = (1 << 31) - 1


class QueueDirectory(NamedTuple):
    """A topic-queue and the directory of its files."""

    topic: str
    queue_id: int
    path: str


def queue_directories(consume_queue: str | os.PathLike[str]) -> Iterator[QueueDirectory]:
    """The topic-queues below a `consumequeue` directory, sorted; none where it is missing.

    Only directories whose name is a number are queues: that of an LMQ with `/` in its name lies
    inside another topic's, where no broker finds it again (spec 2.1, 2.9). Raises Unreadable.
    """
    for path in sorted(_directories(os.fspath(consume_queue))):
        yield from queues_of_topic(_base(path), path)


def queues_of_topic(topic: str, directory: str) -> Iterator[QueueDirectory]:
    """The queues in a topic's directory, by number."""
    numbers = (path for path in _directories(directory) if _base(path).isdecimal())
    for path in sorted(numbers, key=lambda path: (int(_base(path)), path)):
        queue_id = int(_base(path))
        if queue_id <= LARGEST_QUEUE_ID and str(queue_id) == _base(path):
            yield QueueDirectory(topic, queue_id, path)


def has_topic(consume_queue: str | os.PathLike[str], topic: str) -> bool:
    """Whether a topic has a directory of its own below `consumequeue`."""
    if not topic or "\0" in topic or {"", ".", ".."} & set(topic.split("/")):
        return False
    return os.path.isdir(os.path.join(consume_queue, topic))  # noqa: PTH112, PTH118


def no_topic(consume_queue: str | os.PathLike[str], topic: str) -> NotFound:
    """The error for a topic without queues, with the name that may have been meant."""
    from difflib import get_close_matches

    path = os.fspath(consume_queue)
    names = get_close_matches(topic[:256], map(_base, _directories(path)), n=1)
    hint = f"did you mean {names[0]}?" if names else "mqstore inspect lists the topics"
    return NotFound(f"no such topic: {topic}", path=path, hint=hint)


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _directories(parent: str) -> list[str]:
    try:
        with os.scandir(parent) as entries:
            return [entry.path for entry in entries if is_directory(entry)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise from_os_error(error, parent) from error
