"""`mqstore put --transaction commit|rollback`: the end of a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .put import Target, Transaction, answers_of, held_interrupts, new_reader

if TYPE_CHECKING:
    from .output import Output


def decide(
    target: Target, transaction: Transaction | None, name: str | None, out: Output
) -> Iterator[dict[str, Any]]:
    """End a transaction: the real message where it is a commit, and the op record."""
    from ..store.disk.layout import Layout
    from ..store.errors import InvalidInput
    from ..store.put.producer import committed, decided, open_half

    if name is None or transaction not in (Transaction.COMMIT, Transaction.ROLLBACK):
        raise InvalidInput("--transaction commit and rollback go together with --half KEY")
    Layout.open(target.store, target.common.config())  # what is no store is not made one
    with target.writer(new_reader()) as writer:
        prepared = open_half(writer.layout, name)
        found = [decided(prepared, writer.profile, writer.rules.store_host, writer.clock())]
        if transaction is Transaction.COMMIT:
            found.insert(0, committed(prepared, writer.profile))
        with held_interrupts():
            stored = [writer.append(message) for message in found]
            writer.sync()
        yield from answers_of(stored, [message.properties for message in found])
        out.flush()
