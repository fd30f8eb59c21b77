"""Exceptions in callbacks of event loops. asyncio only logs them, and a test that waits for the callback would hang."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_report = asyncio.BaseEventLoop.default_exception_handler


@contextmanager
def callback_errors() -> Iterator[list[BaseException]]:
    """Collect exceptions of callbacks. Each cancels all tasks of its loop, so that whatever runs the loop ends."""
    errors: list[BaseException] = []

    def handle(loop: asyncio.BaseEventLoop, context: dict[str, Any]) -> None:
        _report(loop, context)
        error = context.get("exception")
        if "handle" in context and error is not None:  # of a callback; a task's exception goes to its awaiter
            errors.append(error)
            for task in asyncio.all_tasks(loop):
                task.cancel()

    before = asyncio.BaseEventLoop.default_exception_handler
    asyncio.BaseEventLoop.default_exception_handler = handle  # type: ignore[method-assign]
    try:
        yield errors
    finally:
        asyncio.BaseEventLoop.default_exception_handler = before  # type: ignore[method-assign]
