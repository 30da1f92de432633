"""Pictures as shapes and numbers: what a template draws, and the table below it.

Horizontal places are percents of the width: a picture fits a telephone, a screen and paper, and its letters keep their
size. Vertical places are pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

GUTTER = 24.0
"""Percent of the width for the names of rows."""


class Box(NamedTuple):
    """A rectangle. x, width: percent. y, height: pixels. look: a class of the style sheet."""

    x: float
    y: float
    width: float
    height: float
    look: str
    title: str = ""


class Label(NamedTuple):
    """A text, cut off at the end of its place. anchor: `start`, `middle` or `end`."""

    x: float
    y: float
    width: float
    text: str
    look: str = ""
    anchor: str = "start"


class LegendLine(NamedTuple):
    """A line of the legend."""

    look: str
    text: str


class NumbersTable(NamedTuple):
    """The numbers below a picture. head: names; a # in front marks a column of numbers. more: number of rows that are
    not shown.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    more: int = 0


class Picture(NamedTuple):
    """One picture. says: what it shows, in a sentence that also serves who cannot see it. height: pixels."""

    name: str
    title: str
    says: str
    height: float
    boxes: Sequence[Box]
    labels: Sequence[Label]
    legend: Sequence[LegendLine]
    table: NumbersTable
    note: str = ""


def across(begin: float, end: float) -> tuple[float, float]:
    """Return begin and width of a part of the plot (0 … 1), in percent."""
    width = 100 - GUTTER
    return GUTTER + begin * width, max(0.0, end - begin) * width


def squarified(sizes: Sequence[float], width: float, height: float) -> list[tuple[float, ...]]:
    """Return a rectangle (x, y, width, height) for each size, as near to squares as possible; sizes: largest first
    (Bruls, Huizing, van Wijk: Squarified Treemaps, 2000).
    """
    remaining = [size * width * height / sum(sizes) for size in sizes] if sum(sizes) > 0 else []
    found: list[tuple[float, ...]] = []
    x = y = 0.0
    while remaining:
        side, row = min(width, height), remaining[:1]
        while len(row) < len(remaining) and _worst(remaining[: len(row) + 1], side) <= _worst(row, side):
            row = remaining[: len(row) + 1]
        thick = min(sum(row) / side, max(width, height)) if side else 0.0  # sums are rounded
        at = 0.0
        for area in row:
            long = area / thick if thick else 0.0
            if width >= height:
                found.append((x, y + at, thick, long))
            else:
                found.append((x + at, y, long, thick))
            at += long
        if width >= height:
            x, width = x + thick, max(0.0, width - thick)
        else:
            y, height = y + thick, max(0.0, height - thick)
        remaining = remaining[len(row) :]
    return found


def _worst(row: Sequence[float], side: float) -> float:
    total = sum(row)
    if not total or not side:
        return float("inf")
    return max(side**2 * max(row) / total**2, total**2 / (side**2 * max(min(row), 1e-12)))
