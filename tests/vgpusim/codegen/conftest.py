"""Every kernel that a test here compiles is verified after each pass."""

from collections.abc import Iterator

import pytest
from vgpusim.codegen import passes, verify


@pytest.fixture(autouse=True, scope="session")
def _verified() -> Iterator[None]:
    passes.HOOKS.append(verify.check)
    yield
    passes.HOOKS.remove(verify.check)
