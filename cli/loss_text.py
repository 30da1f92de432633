"""The part of `recover`'s page about losses, message by message, and about what a replica brings back."""

from __future__ import annotations

from typing import Any

from ..store.counted import counted
from ..store.disk.broker_conf import CONTROLLER_MODE
from ..store.recover.recovery import Recovery
from ..store.verify.verdict import OTHERS_FIRST
from .options import Common
from .plan_text import ROWS, folded, section
from .terminal import time_text

_WORDS_MAX = 60


def lost_lines(found: Recovery, common: Common) -> list[str]:
    """Lines about the messages that the plan gives up, one for each record."""
    from ..store.plan.lost_messages import messages_of_rows

    rows = found.named.get("plan", [])
    if found.plan is None or not rows:
        return []
    shown = rows if common.verbose else rows[:ROWS]
    lines = ["", "The single messages, as far as known:", *(_lost(row, common) for row in shown)]
    more = max(found.plan.lost.messages, messages_of_rows(rows)) - messages_of_rows(shown)
    if more > 0:
        how = "JSON has" if common.verbose else "--verbose shows"
        lines.append(f"  … {more:,} more ({how} up to 100,000)")
    return lines


def _lost(row: dict[str, Any], common: Common) -> str:
    place = "?" if row["topic"] is None else row["topic"]
    if row["queue_id"] is not None:
        place += f"/{row['queue_id']} at {row['queue_offset']}"
        place += f" to {row['queue_offset'] + row['batch_size'] - 1}" if "batch_size" in row else ""
    size = "" if row["size"] is None else f", {counted(row['size'], 'byte')}"
    return f"  {place}  {_when(row, common)}  position {row['position']:,}{size}{_who(row)}"


def _when(row: dict[str, Any], common: Common) -> str:
    """The store time, or the times that it lies between."""
    if row["store_timestamp"] is not None:
        return time_text(row["store_timestamp"], common.utc)
    first, last = row["not_before"], row["not_after"]
    if first is None and last is None:
        return "time unknown"
    if first is None:
        return f"before {time_text(last, common.utc)}"
    begin = time_text(first, common.utc)
    return f"{begin} or later" if last is None else f"{begin} … {time_text(last, common.utc)}"


def _who(row: dict[str, Any]) -> str:
    words = []
    if row["unique_key"]:
        words.append(f"id {row['unique_key']}")
    if row["keys"]:
        words.append(f"keys {' '.join(row['keys'])}")
    if row["key_hashes"]:
        words.append(f"key hashes {', '.join(map(str, row['key_hashes']))}")
    text = ", ".join(words)
    return f"  {text[:_WORDS_MAX]}{'…' if len(text) > _WORDS_MAX else ''}" if text else ""


def timer_lines(found: Recovery) -> list[str]:
    """Lines about what a start does to the index, to delayed messages and to waiting timed messages."""
    timers, items = found.prediction.timers, found.prediction.index_items_lost
    again = found.prediction.again
    lines = []
    if items:
        lost = counted(items, "index item", form=",")
        lines = ["", f"{lost} would be lost: they are older than the part that is indexed again (B19)."]
    if again.delayed_again:
        delayed = counted(again.delayed_again, "delayed message", form=",")
        they = "it was" if again.delayed_again == 1 else "they were"
        lines += ["", f"{delayed} would be delivered again: delayOffset.json does not have that {they} delivered."]
    if again.popped_again:
        given = counted(again.popped_again, "message", form=",")
        why = "the positions of groups or in the revive topic are older"
        lines += ["", f"{given} that POP consumers were given would be given again: {why}."]
    if again.asked_again:
        committed = counted(again.asked_again, "committed transaction", form=",")
        lines += ["", f"{committed} would be asked about again: a start reads no op record of theirs."]
        lines.append("If the producer says commit, their messages are delivered again.")
    if timers is None or timers.harmless:
        return lines
    why = f" ({', '.join(timers.bugs)})" if timers.bugs else ""
    lines += ["", f"Timed messages, {timers.pending:,} of them waiting{why}:"]
    if timers.never_fired:
        lines.append(f"  {timers.never_fired:>9,}  would never fire")
    if timers.fired_twice:
        twice = f"{'up to ' if timers.if_elected else ''}{timers.fired_twice:,}"
        lines.append(f"  {twice:>9}  would fire twice{timers.if_elected}")
    if timers.loops:
        ticks = counted(timers.loops, " tick would lead to itself", " ticks would lead to themselves", form=">9,")
        lines.append(f"  {ticks}, and stop the timer")
    if timers.stuck_at is not None:
        lines.append(f"  none behind queue offset {timers.stuck_at:,} would be read: its due time is not a number")
    if timers.read_timestamp is not None:
        lines.append(f"  none would fire before {timers.fires_from}")
    return lines


def last_lines(found: Recovery) -> list[str]:
    """Lines about the order of starts, if what the plan leaves to a master comes only from another broker."""
    plan = found.plan
    if plan is None or plan.lost_end.stop <= plan.log_end:
        return []
    role = " --set brokerRole=ASYNC_MASTER" if found.layout.broker_config.is_slave else ""
    alone = [
        f"If no other broker has it, `--set {CONTROLLER_MODE}=false{role}`",
        "ends the log behind it, with a tombstone in place of each message.",
    ]
    return [
        "",
        "If a controller makes this broker the master, the others cut their logs to its end, and what follows there",
        f"is gone: {OTHERS_FIRST}.",
        "Or `--replica` and the store of such a broker bring it back, also after --apply.",
        *(alone if found.options.policy == "keep" and plan.resent else ()),
    ]


def slave_lines(found: Recovery) -> list[str]:
    """Lines about damage in the log of a slave, which should be a copy of the master's."""
    plan, start = found.plan, found.prediction
    if plan is None or not found.layout.follows_master or found.options.policy != "keep":
        return []
    lines = []
    if any(len(fill.lost) or fill.fillers for fill in plan.fills) or plan.cut:
        lines += [
            "",
            "Tombstones, fillers and separators make the log of this slave differ from the master's; `--replica` and a",
            "copy of the master's store bring the records back.",
        ]
    if start.lost.messages and start.log_end is not None:
        lines += [
            "",
            f"The master sends what a start cuts off again, if its log is the same up to {start.log_end:,} and goes",
            "on from there. `--policy broker` cuts the log there, too, and can be taken back. With `--replica` and a",
            "copy of the master's store it cuts where the two logs begin to differ.",
        ]
    return lines


def cut_lines(found: Recovery, rows: int | None) -> list[str]:
    """Lines about messages that stay, without some of their properties."""
    cut = found.plan.cut if found.plan else ()
    lines = (
        f"  {c.topic}/{c.queue_id} at {c.queue_offset}  position {c.position:,}  "
        f"{counted(c.lost_bytes, 'byte')} of properties lost,"
        f" left: {', '.join(c.properties) or 'none'}"
        for c in cut
    )
    return section("A torn write has cut off properties of these messages; body and header are whole:", lines, rows)


def replica_lines(found: Recovery, rows: int | None) -> list[str]:
    """Lines about what comes back from a replica, and what does not."""
    brought = found.plan.brought if found.plan else None
    if brought is None:
        return []
    at = None if brought.parted_at is None else f"{brought.parted_at:,}"
    if found.options.policy != "keep":
        if at is None:
            return ["", f"Of the messages of the replica {brought.replica} none differs here: it changes nothing."]
        end = found.plan.log_end if found.plan else 0
        place = "there" if end == brought.parted_at else at
        other = f"from {place} on it {brought.has_other}"
        return ["", f"This log is cut at {end:,}: {other}."]
    lines = ["", f"From the replica {brought.replica}:"]
    parts = (
        f"  {counted(p.size, 'byte', form=',')} at {p.position:,}: {counted(p.records, 'record', form=',')}"
        for p in brought.parts
    )
    lines += folded(parts, rows)
    if not brought.parts:
        lines.append("  nothing")
    if brought.lacks:
        lines.append(
            "These parts do not come from the replica; where tombstones take their place, the two logs differ:"
        )
        lacks = (f"  {counted(m.size, 'byte', form=',')} at {m.position:,}: {m.reason}" for m in brought.lacks)
        lines += folded(lacks, rows)
    if brought.goes_on and brought.confirmed is not None:
        lines += [
            "The replica continues behind the end of this log. Nothing of that is taken: the replica's checkpoint has",
            f"confirmPhyOffset {brought.confirmed:,}, and what is not confirmed may be cut again.",
        ]
    elif brought.goes_on:
        lines.append("The replica continues behind the end of this log, which ends in order.")
    if at is not None:
        lines.append(f"From {at} on the replica has other messages than this log: neither becomes a copy of the other.")
        if not found.layout.broker_config.has_controller(found.layout.root):
            slave = "`--set brokerRole=SLAVE --policy broker`"
            lines.append(f"{slave} cuts this log there, so that it can follow the replica's broker.")
    elif brought.ends_at is not None:
        lines += [
            f"The replica ends at {brought.ends_at:,}, before this log. If that is the master as it is now, this slave",
            "never follows it: make this broker the master, or let `--policy broker` cut this log there.",
        ]
    if brought.earlier_bytes:
        bytes_ = counted(brought.earlier_bytes, "byte", form=",")
        lines.append(f"The replica has {bytes_} in front of this log, whose first files may have expired.")
    return lines
