"""Which differences tests/gpu/profiles.py reports; these tests need no card."""

from tests.gpu.profiles import compare, medians, times

NATIVE = [("a", 10.0), ("b", 2.0), ("a", 20.0)] * 3


def test_equal_profiles() -> None:
    assert compare("w", NATIVE, list(NATIVE), None) == []
    rows, whole = times(NATIVE, NATIVE, NATIVE, 3)
    assert [(row.name, row.native_us, row.is_close) for row in rows] == [("a", 15.0, True), ("b", 2.0, True)]
    assert whole == 1


def test_a_lost_record_and_another_order_differ() -> None:
    assert compare("w", NATIVE, NATIVE[:-1], None) == ["w: a: 6 records natively, 5 remoted"]
    other = [NATIVE[1], NATIVE[0], *NATIVE[2:]]
    assert compare("w", NATIVE, other, NATIVE) == ["w: the order differs"]
    assert compare("w", NATIVE, other, other) == []  # the order differs between native runs, too
    assert compare("w", [], [], None) == ["w: no record"]


def test_a_longer_time_differs() -> None:
    """Times may differ by 5 %, by two ticks of the clock, or by as much as two native runs do."""
    slow = [(name, duration * 1.06) for name, duration in NATIVE]
    assert [row.is_close for row in times(NATIVE, slow, NATIVE, 3)[0]] == [False, False]
    assert [row.is_close for row in times(NATIVE, slow, slow, 3)[0]] == [True, True]
    ticks = [(name, duration + 0.06) for name, duration in NATIVE]
    assert all(row.is_close for row in times(NATIVE, ticks, NATIVE, 3)[0])
    copies = [("Memcpy HtoD (Pageable -> Device)", 9.0)]
    assert times(copies, [(copies[0][0], 3.0)], copies, 1)[0][0].is_close


def test_one_slow_repetition_does_not_count() -> None:
    assert medians([("a", 1.0), ("a", 99.0), ("a", 1.0)], 3) == {"a": [1.0]}
