"""The error of a worker, out of what Spark says of it."""

from __future__ import annotations

import pytest

from mqstore.pipeline.failures import JobFailed, failure_of, failures
from mqstore.store.errors import Unreadable


def test_the_error_of_a_worker_is_found_in_sparks_words() -> None:
    text = """[PYTHON_DATA_SOURCE_ERROR] Failed to read: Traceback (most recent call last):
  File "x.py", line 3, in read
    raise Unreadable
mqstore.store.errors.Unreadable: cannot read (Input/output error): /s/commitlog/0

\tat org.apache.spark.X.y(X.scala:3)
"""
    error = failure_of(text)
    assert type(error) is Unreadable
    assert str(error) == "cannot read (Input/output error): /s/commitlog/0"
    other = failure_of("Traceback\nValueError: what\n  at x")
    assert type(other) is JobFailed
    assert str(other) == "the Spark job failed: ValueError: what"


def test_a_worker_that_was_killed_is_told_wherever_it_stands() -> None:
    text = "java.io.IOException: Stream closed\n\tat x\nCaused by: org.apache.spark.SparkException: " + (
        "Python worker exited unexpectedly (crashed).\n\tat y\nCaused by: java.io.EOFException\n"
    )
    assert str(failure_of(text)) == "the Spark job failed: Python worker exited unexpectedly (crashed)."


def test_ctrl_c_in_the_middle_of_a_talk_is_no_failure() -> None:
    """Spark clears up behind its calls, and gets no answer then."""
    with pytest.raises(KeyboardInterrupt), failures():
        try:
            raise KeyboardInterrupt
        finally:
            raise ConnectionError("Answer from Java side is empty")
    with pytest.raises(JobFailed, match="is empty"), failures():
        raise ConnectionError("Answer from Java side is empty")
