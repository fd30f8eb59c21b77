"""A test fails at once if a callback of its event loop raises an exception; see tests/event_loop.py."""

import asyncio

import pytest

from tests.event_loop import callback_errors


def raise_in_callback() -> None:
    raise ValueError("a callback's mistake")


def test_an_exception_in_a_callback_ends_what_waits_for_it() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(raise_in_callback)
        await loop.create_future()

    with callback_errors() as errors, pytest.raises(asyncio.CancelledError):
        asyncio.run(scenario())
    assert [str(error) for error in errors] == ["a callback's mistake"]


def test_an_exception_of_a_task_is_its_awaiters() -> None:
    async def failing() -> None:
        raise ValueError("a task's mistake")

    async def scenario() -> None:
        with pytest.raises(ValueError, match="a task's mistake"):
            await asyncio.create_task(failing())

    with callback_errors() as errors:
        asyncio.run(scenario())
    assert not errors
