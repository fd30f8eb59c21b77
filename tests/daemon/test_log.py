"""Log lines: one line for each event, whatever its text."""

from __future__ import annotations

import io
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vgpud.log import KeyedRateLimit, RateLimit, configure_log, escape, get_logger, stderr_is_journal


@given(st.text())
def test_escaped_text_is_one_printable_line(text):
    escaped = escape(text)
    assert escaped.isascii()
    assert escaped.isprintable()
    assert escaped


def test_plain_words_stay_plain():
    assert escape("uid:1000") == "uid:1000"
    assert escape("two words") == '"two words"'
    assert escape("") == '""'
    assert len(escape("x" * 5000)) < 1100


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("journal", '<4>refused peer=uid:0 reason="no\\nway"\n'),
        ("human", ' warning refused peer=uid:0 reason="no\\nway"\n'),
    ],
)
def test_styles(style, expected):
    out = io.StringIO()
    configure_log("info", style, file=out)
    get_logger(peer="uid:0").warning("refused", reason="no\nway", absent=None)
    get_logger().debug("not shown")
    assert out.getvalue().endswith(expected)
    assert out.getvalue().count("\n") == 1
    if style == "journal":
        assert out.getvalue() == expected


def test_json():
    out = io.StringIO()
    configure_log("debug", "json", file=out)
    get_logger().error("x", n=1, s="a\nb")
    line = json.loads(out.getvalue())
    assert (line["event"], line["level"], line["n"], line["s"]) == ("x", "error", 1, "a\nb")


def test_the_journal_is_recognised_by_the_stream_itself(monkeypatch):
    status = os.fstat(2)
    monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
    assert stderr_is_journal()
    monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino + 1}")
    assert not stderr_is_journal()


def test_a_log_that_cannot_be_written_stops_nothing():
    class Broken(io.StringIO):
        def write(self, _text):
            raise BrokenPipeError

    configure_log("info", "human", file=Broken())
    get_logger().info("lost")


def test_rate_limit():
    limit = RateLimit(rate=0.001, burst=3)
    assert [limit.allows() for _ in range(5)] == [True, True, True, False, False]
    assert limit.take_suppressed() == 2
    assert limit.take_suppressed() == 0


def test_rate_limits_by_key_are_bounded():
    limits = KeyedRateLimit(rate=0.001, burst=1, capacity=2)
    assert limits.of("a").allows()
    assert not limits.of("a").allows()
    assert limits.of("b").allows()
    assert not limits.of("a").allows()
    assert limits.of("c").allows()
    assert not limits.of("a").allows()
    assert limits.of("b").allows()  # "b" has been evicted


def test_an_exception_is_one_line_that_ends_with_its_message():
    out = io.StringIO()
    configure_log("info", "journal", file=out)
    try:
        raise ValueError("the\nreason")
    except ValueError:
        get_logger().exception("internal error")
    assert out.getvalue().startswith("<3>internal error exception=")
    assert out.getvalue().endswith('ValueError: the\\nreason"\n')
    assert out.getvalue().count("\n") == 1
