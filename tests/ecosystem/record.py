"""Calls of NVIDIA's libraries compared with the CPU's results, on a card and on the simulator.

    python3 tests/ecosystem/record.py record FILE [PART...]    # writes FILE, a line for each call
    python3 tests/ecosystem/record.py check FILE [PART...]     # compares with FILE, too, if it exists (a card's record)

`record tests/ecosystem/card.json` on a card makes the file that the tests compare with; `--results FILE` keeps what
`check` found.

It needs numpy and NVIDIA's wheels (those that torch brings do); a library that is not installed is named as absent.
Each part runs in its own process, which is restarted after a call that ends it, breaks its context or times out.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from calls import device

PARTS = ("blas", "blas_lt", "fft", "rand", "solver", "sparse", "dnn", "npp", "jit")
SAMPLES = 4
CALL_TIMEOUT_S = float(os.environ.get("VGPU_CALL_TIMEOUT_S", "240"))


def samples(found: np.ndarray) -> list[str]:
    """Some of the result's numbers, in hexadecimal, at positions that depend only on the result's size."""
    flat = found.ravel(order="K")
    places = np.unique(np.linspace(0, flat.size - 1, SAMPLES).astype(int))
    numbers = [complex(flat[place]) for place in places]
    return [
        part.hex()
        for number in numbers
        for part in ([number.real, number.imag] if found.dtype.kind == "c" else [number.real])
    ]


def outcome(call: device.Call) -> dict[str, Any]:
    """Run a call; return its verdict, and its result in the form that the record keeps."""
    try:
        found, expected = (np.asarray(part) for part in call.run())
    except device.Absent as missing:
        return {"verdict": "absent", "why": str(missing)}
    except (device.Refused, AssertionError, OSError) as error:
        return {"verdict": "refused", "why": str(error)}
    if found.shape != expected.shape:
        return {"verdict": "wrong", "why": f"shape {found.shape} instead of {expected.shape}"}
    kind = "c16" if "c" in (found.dtype.kind, expected.dtype.kind) else "f8"
    difference = np.abs(found.astype(kind) - expected.astype(kind)).max()
    limit = call.tolerance * max(1.0, float(np.abs(expected).max()))
    right = bool(difference <= limit)  # false for NaN
    plain = np.ascontiguousarray(found)
    return {
        "verdict": "right" if right else "wrong",
        **({} if right else {"why": f"off by {difference:.3g}, allowed {limit:.3g}"}),
        "digest": hashlib.sha256(plain.tobytes()).hexdigest()[:16],
        "samples": samples(plain),
        "limit": limit,
    }


def child(part: str, begin: int) -> None:
    """Run a part's calls from number `begin` on, print JSON lines; exit with 3 after a call that ended the context."""
    calls = list(importlib.import_module(f"calls.{part}").calls())
    driver = device.start()
    print(json.dumps({"device": driver.name(), "count": len(calls)}), flush=True)
    for call in calls[begin:]:
        print(json.dumps({"name": call.name}), flush=True)
        start = time.monotonic()
        answer = outcome(call)
        answer["seconds"] = round(time.monotonic() - start, 1)
        print(json.dumps(answer), flush=True)
        if not driver.works():
            os._exit(3)
    os._exit(0)  # without the libraries' exit handlers, which are not under test


class Deadline:
    """Kills a process that prints nothing for too long."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.passed = process, False
        self.timer = threading.Timer(CALL_TIMEOUT_S, self._pass)
        self.timer.start()

    def _pass(self) -> None:
        self.passed = True
        self.process.kill()

    def renew(self) -> None:
        self.timer.cancel()
        self.timer = threading.Timer(CALL_TIMEOUT_S, self._pass)
        self.timer.start()


def part_results(part: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """Run a part; return the device's name and each call's outcome."""
    found: dict[str, dict[str, Any]] = {}
    name, count = "", 1
    while len(found) < count:
        command = [sys.executable, __file__, "child", part, str(len(found))]
        running = ""
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            deadline = Deadline(process)
            for line in process.stdout:
                deadline.renew()
                answer = json.loads(line)
                if "device" in answer:
                    name, count = answer["device"], answer["count"]
                elif "name" in answer:
                    running = answer["name"]
                else:
                    report(found, running, answer)
                    running = ""
            deadline.timer.cancel()
        why = f"no end in {CALL_TIMEOUT_S:.0f} s" if deadline.passed else f"the process ended with {process.returncode}"
        if running:
            report(found, running, {"verdict": "died", "why": why})
        elif not found:  # the process ended before its first call
            report(found, f"{part}: all", {"verdict": "died", "why": why})
            break
    return name, found


def report(found: dict[str, dict[str, Any]], name: str, answer: dict[str, Any]) -> None:
    found[name] = answer
    why = f": {answer['why']}" if "why" in answer else ""
    print(f"{answer['verdict']} {name}{why} ({answer.get('seconds', '-')} s)", flush=True)


def against(record: dict[str, Any], results: dict[str, dict[str, Any]]) -> list[str]:
    """Names of calls whose results differ from the card's by more than twice the tolerance against the CPU."""
    different, same = [], 0
    for name, answer in results.items():
        card = record["results"].get(name)
        if card is None or "samples" not in card or "samples" not in answer:
            continue
        if card["digest"] == answer["digest"]:
            same += 1
            continue
        pairs = zip(map(float.fromhex, card["samples"]), map(float.fromhex, answer["samples"]), strict=True)
        if not all(abs(left - right) <= 2 * answer["limit"] for left, right in pairs):
            different.append(name)
    print(f"beside {record['device']}: {same} with the same bits, {len(different)} different: {', '.join(different)}")
    return different


def main() -> int:
    if sys.argv[1] == "child":
        child(sys.argv[2], int(sys.argv[3]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("record", "check"))
    parser.add_argument("file", type=Path)
    parser.add_argument("parts", nargs="*", default=PARTS)
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}
    devices: set[str] = set()
    for part in options.parts:
        name, found = part_results(part)
        devices |= {name} - {""}
        results |= found
        print(f"{part}: {summary(found)}", flush=True)
    print(f"all: {summary(results)}")
    kept = options.file if options.mode == "record" else options.results
    if kept:
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(answer)}" for name, answer in results.items())
        kept.write_text(f'{{"device": {json.dumps(", ".join(sorted(devices)))}, "results": {{\n{lines}\n}}}}\n')
    if options.mode == "record":
        return 0
    different = against(json.loads(options.file.read_text()), results) if options.file.exists() else []
    return 1 if different or any(answer["verdict"] not in ("right", "absent") for answer in results.values()) else 0


def summary(results: dict[str, dict[str, Any]]) -> str:
    verdicts = Counter(answer["verdict"] for answer in results.values())
    return f"{len(results)} calls, {', '.join(f'{count} {verdict}' for verdict, count in verdicts.items())}"


if __name__ == "__main__":
    sys.exit(main())
