"""What the doctor says of memory that a VM shares with its host; tests/vm runs the doctor in a real VM."""

from pathlib import Path

import pytest
from vgpu_guest.doctor.check_endpoint import channel
from vgpu_guest.doctor.shared_memory import look


def test_a_file_that_is_named_and_can_be_opened(tmp_path: Path) -> None:
    (tmp_path / "memory").touch()
    assert look({"VGPU_SHARED_MEMORY": f"{tmp_path}/memory"}, "off") == {"path": f"{tmp_path}/memory"}
    assert look({}, f"{tmp_path}/memory") == {"path": f"{tmp_path}/memory"}


@pytest.mark.parametrize(
    ("environment", "configured", "why"),
    [
        ({"VGPU_SHARED_MEMORY": "off"}, "/x", "shared_memory is off"),
        ({"VGPU_SHARED_MEMORY": "/proc/0"}, "", "/proc/0: No such file or directory"),
        ({}, "/proc/self", "/proc/self: Is a directory"),
    ],
)
def test_why_there_is_none(environment: dict[str, str], configured: str, why: str) -> None:
    assert look(environment, configured) == {"why": why}


@pytest.mark.parametrize(
    ("features", "memory", "is_shared"),
    [(["region"], {"path": "/x"}, True), (["region"], {"why": "none"}, False), ([], {"path": "/x"}, False)],
)
def test_both_sides_have_to_have_it(features: list[str], memory: dict[str, str], is_shared: bool) -> None:
    assert ("shared" in channel({"kind": "vsock", "features": features}, memory)) == is_shared
