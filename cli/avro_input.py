"""Read Avro files whose records have the field names of a message's JSON, as an export writes them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from ..store.errors import InvalidInput, StoreError, Unsupported, from_os_error
from ..store.put.message_json import record_of
from .ndjson_input import Line

_ROWS = 1000


def read_portions(path: Path, note: Callable[[int], None]) -> Iterator[list[Line]]:
    """Yield the rows of a file in portions; the first row has number 1.

    note: called with the number of bytes read since the last call. Raises InvalidInput with the row, Missing,
    Unreadable, Unsupported.
    """
    try:
        from fastavro import reader
    except ImportError:
        raise Unsupported("avro files need fastavro", hint="pip install 'mqstore[avro]'") from None
    portion: list[Line] = []
    number = seen = 0
    try:
        with path.open("rb") as file:
            for number, row in enumerate(reader(file), 1):
                if not isinstance(row, dict):
                    raise ValueError("not a record")  # noqa: TRY004 - as a parser raises
                portion.append(Line(number, record_of(row, number)))
                if len(portion) == _ROWS:
                    yield portion
                    portion = []
                    note(file.tell() - seen)
                    seen = file.tell()
    except OSError as error:
        problem: StoreError | None = from_os_error(error, path)
    except (ValueError, EOFError, LookupError, zlib.error) as error:
        problem = InvalidInput(f"not a valid avro file after row {number}: {error}")
    except InvalidInput as error:
        problem = error
    else:
        problem = None
    if portion:
        yield portion
    if problem is not None:
        raise problem
