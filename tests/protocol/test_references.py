"""AT10: while one ring uses an object, the driver is not asked to destroy that object for another ring."""

from __future__ import annotations

import pytest

from protocol.gen.load import load
from tests.protocol.records import Dispatcher, compile_parts, link
from tests.protocol.rings import SCENES, Scene


@pytest.fixture(scope="module")
def dispatcher(tmp_path_factory: pytest.TempPathFactory) -> Dispatcher:
    folder = tmp_path_factory.mktemp("references")
    return Dispatcher(link(compile_parts(load(), folder), folder / "dispatch.so"))


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_at10(scene: Scene, dispatcher: Dispatcher) -> None:
    assert scene.fault(dispatcher) == ""
