"""Check that Perfetto and chrome://tracing can read a trace. The document "Trace Event Format" defines Chrome's JSON
format: which fields an event of each phase has.

The slices of one thread must nest: slices that overlap in part are drawn wrongly or left out.
"""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

_NUMBERS = (int, float)
_INSTANT_SCOPES = ("g", "p", "t")
_METADATA = ("process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index")
_ROUNDING_US = 0.002  # writers round to a nanosecond


def problems(trace: Any, nesting_us: float = _ROUNDING_US) -> list[str]:
    """The faults of a trace; an empty list: it can be opened. `nesting_us`: by how much a slice may end after the slice
    inside which it begins."""
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    found: list[str] = []
    for number, event in enumerate(events):
        if event:  # XLA ends its list with an empty event
            found += [f"event {number}, {event}: {text}" for text in _event(event)]
    slices = _slices(events)
    return found + _flows(events, slices) + _nesting(slices, nesting_us)


def _event(event: dict[str, Any]) -> Iterable[str]:
    phase = event.get("ph")
    if phase == "M":
        if event.get("name") not in _METADATA:
            yield "unknown metadata"
        elif not isinstance(event.get("args"), dict) or not event["args"]:
            yield "metadata without args"
        return
    if phase not in ("X", "i", "I", "s", "t", "f", "C", "B", "E"):
        yield f"phase {phase!r}"
        return
    if phase != "E" and not isinstance(event.get("name"), str):
        yield "no name"
    if not isinstance(event.get("ts"), _NUMBERS):
        yield "no ts"
    if "pid" not in event or "tid" not in event:
        yield "no pid or tid"
    if phase == "X" and not (isinstance(event.get("dur"), _NUMBERS) and event["dur"] >= 0):
        yield "no dur"
    if phase in "stf" and "id" not in event:
        yield "a flow without id"
    if phase in "iI" and event.get("s", "t") not in _INSTANT_SCOPES:
        yield "scope of an instant"
    if phase == "C" and not all(isinstance(value, _NUMBERS) for value in event.get("args", {"": ""}).values()):
        yield "a counter that is not a number"


def _slices(events: Iterable[dict[str, Any]]) -> dict[tuple[Any, Any], list[tuple[float, float, str]]]:
    """Begin, end and name of each thread's slices, outer ones first."""
    found = defaultdict(list)
    for event in events:
        if event.get("ph") == "X":
            found[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"], event["name"]))
    for slices in found.values():
        slices.sort(key=lambda each: (each[0], -each[1]))
    return found


def _flows(
    events: Iterable[dict[str, Any]], slices: dict[tuple[Any, Any], list[tuple[float, float, str]]]
) -> list[str]:
    """Each flow has a beginning and an end, in that order, and both lie on slices."""
    ends: dict[Any, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        if event.get("ph") in ("s", "f"):
            ends[event.get("cat"), event["name"], event["id"]][event["ph"]].append(event)
    covers = {thread: _Cover(inside) for thread, inside in slices.items()}
    found = []
    for key, flow in ends.items():
        if len(flow["s"]) != 1 or not flow["f"]:
            found.append(f"flow {key} has {len(flow['s'])} beginnings and {len(flow['f'])} ends")
            continue
        if any(end["ts"] < flow["s"][0]["ts"] for end in flow["f"]):
            found.append(f"flow {key} ends before it begins")
        for event in (flow["s"][0], *flow["f"]):
            at, thread = event["ts"], (event["pid"], event["tid"])
            if thread not in covers or not covers[thread].has(at):
                found.append(f"flow {key}: no slice at {at}")
    return found


class _Cover:
    """Whether a time lies in one of a thread's slices, which are sorted by their begin."""

    def __init__(self, slices: list[tuple[float, float, str]]) -> None:
        self.begins = [begin for begin, _, _ in slices]
        self.ends = list(itertools.accumulate((end for _, end, _ in slices), max))  # the last end so far

    def has(self, at: float) -> bool:
        before = bisect.bisect_right(self.begins, at + _ROUNDING_US)
        return before > 0 and self.ends[before - 1] >= at - _ROUNDING_US


def _nesting(slices: dict[tuple[Any, Any], list[tuple[float, float, str]]], rounding_us: float) -> list[str]:
    found = []
    for thread, inside in slices.items():
        around: list[tuple[float, float, str]] = []
        for each in inside:
            while around and around[-1][1] <= each[0] + rounding_us:
                around.pop()
            if around and each[1] > around[-1][1] + rounding_us:
                found.append(f"on {thread} {each} ends after {around[-1]}, inside which it begins")
            around.append(each)
    return found
