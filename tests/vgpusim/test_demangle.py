"""User-facing text names kernels as they are written in the source (GR7)."""

from vgpusim import demangle


def test_names_in_a_line() -> None:
    line = "kernel _Z5scalePfi ended, not _Zmistake or _ZN2ns4HaveIiE3runEv in plain_Z1x"
    expected = "kernel scale(float*, int) ended, not _Zmistake or ns::Have<int>::run() in plain_Z1x"
    assert demangle.text(line) == expected
    assert demangle.readable("saxpy") == "saxpy"
    assert demangle.readable("_Z" + "9" * 10000) == "_Z" + "9" * 10000
