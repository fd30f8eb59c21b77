"""A copy and a launch pass few files of the guest library, so that a call can be followed by reading."""

import pytest

from tests.house import files_passed

AT_MOST = 9  # hand-written files


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    return files_passed.passed()


@pytest.mark.parametrize("call", ["cuMemcpyHtoD", "cuLaunchKernel"])
def test_a_call_passes_few_files(found: dict[str, list[str]], call: str) -> None:
    read = [name for name in found[call] if not name.endswith("*")]
    assert "vgs_session" in read
    assert len(read) <= AT_MOST, f"`python tests/house/files_passed.py` lists them: {read}"
