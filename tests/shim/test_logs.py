"""The driver's log API: the host's error messages reach later queries and registered callbacks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Simulate = Callable[..., str]

LOGS = '''
CALLBACK = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_size_t)
def dump(iterator=None, room=4096):
    text, size = create_string_buffer(room), c_size_t(room)
    result = cuda.cuLogsDumpToMemory(iterator, text, byref(size), 0)
    return result, text.raw[:size.value].decode()
def cause():
    """A module that cannot be compiled, of which the host says why."""
    m = c_void_p()
    assert cuda.cuModuleLoadData(byref(m), b".version 7.0\\n.target sm_70\\nnonsense\\0")
'''


def test_messages_by_iterator_and_callback(simulate: Simulate) -> None:
    simulate(
        LOGS
        + """
context()
begin = c_uint(77)
ok(cuda.cuLogsCurrent(byref(begin), 0))
assert begin.value == 0 and dump() == (0, "")
heard = []
@CALLBACK
def hear(data, level, message, length): heard.append((data, level, message.decode(), length))
handle = c_void_p()
ok(cuda.cuLogsRegisterCallback(hear, c_void_p(5), byref(handle)))
cause()
assert len(heard) == 1 and heard[0][:2] == (5, 0) and len(heard[0][2]) == heard[0][3], heard
result, text = dump(byref(begin))
assert not result and text == heard[0][2] + "\\n", text
assert begin.value == 1 and dump(byref(begin)) == (0, "")
ok(cuda.cuLogsUnregisterCallback(handle))
assert cuda.cuLogsUnregisterCallback(handle) == 1
cause()
assert len(heard) == 1
assert dump()[1].count("\\n") == 2
"""
    )


def test_what_does_not_fit(simulate: Simulate) -> None:
    simulate(
        LOGS
        + """
context()
for _ in range(3): cause()
whole = dump()[1]
last = whole.splitlines()[-1]
assert dump(room=8) == (1, ""), "not even one message"
result, text = dump(room=len(last) + 2 + len("(earlier messages are left out)") + 1)
assert not result and text.splitlines() == ["(earlier messages are left out)", last], text
beyond = c_uint(1000)
assert dump(byref(beyond)) == (1, "") and beyond.value == 1000
assert cuda.cuLogsCurrent(None, 0) == 1 and cuda.cuLogsCurrent(byref(beyond), 1) == 1
"""
    )


def test_a_file(simulate: Simulate, tmp_path: Path) -> None:
    simulate(
        LOGS
        + f"""
context()
cause()
ok(cuda.cuLogsDumpToFile(None, {str(tmp_path / "log")!r}.encode(), 0))
assert open({str(tmp_path / "log")!r}).read() == dump()[1] != ""
assert cuda.cuLogsDumpToFile(None, b"/nonexistent/log", 0) == 301
"""
    )
