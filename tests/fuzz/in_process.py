"""Hostile records for the executor and the simulator in one process, searched by what they execute.

`python -m tests.fuzz.in_process SECONDS [--sanitize WHICH] [--seed N] [--replay FILE]` (`make fuzz-records`); `--floor`
measures instead which lines of the executor are executed, and compares with floor.tsv (`make fuzz-floor`); `--faults N`
has one call at a time fail, in N different streams of records (`make faults`).
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from vgpud._gen.api import RECORDS, Record

from tests.fuzz.stream import BY_NAME, FORMATS, WANT_REPLY, encode

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "shim"))

from native import GEN, Toolchain, is_older  # noqa: E402

HERE = Path(__file__).parent
FLOOR = HERE / "floor.tsv"
IMAGE = b"vgt"  # of vgt_kernels.c, whose kernels are C and go wherever their parameters say; this one has none:
KERNEL = b"count_up"
STEPS = 256  # records of a fresh input
INCLUDES = [ROOT / name for name in ("daemon/executor", "daemon/vgpusim/device", "protocol/c", "build/gen")]
# These wait for a client that answers, or for memory that nobody writes: tests/fuzz/executor.py sends them to a worker
# that may be killed. What ends nearly everything is rare.
WAITING = ("Callback", "vgpuRing", "vgpuStreamFlag", "StreamWaitValue", "BatchMemOp")
LEFT_OUT = {name for name in BY_NAME if any(word in name for word in WAITING)}
# Handles' kinds of which the opening makes POOL objects, with ids from 1; records that need others are left out.
POOL = 6
NAMES = "STREAM EVENT MODULE LIBRARY FUNCTION KERNEL MEMPOOL GRAPH GRAPH_EXEC GRAPH_NODE CONTEXT"
KINDS = {name: number for number, name in enumerate(NAMES.split(), 1)}
ELEMENTS = {"GRAPH_NODE": 4, "CUmemAccessDesc": 12}  # bytes; others: 1
ENDINGS = ("Destroy", "Unload", "Reset", "Release", "Drop")
RARE = (*ENDINGS, "vgpu", "CtxCreate", "HostNode", "2D", "3D", "GetDefaultMemPool")


def meaning(record: Record, field: str) -> str:
    [kind] = [kind for kind, name in record.request if name == field]
    what, _ = record.meanings.get(field, ("", ""))
    if what == "length":
        return "VGT_LENGTH"
    known = {
        "creates": "VGT_CREATES",
        "uses": "VGT_HANDLE",
        "destroys": "VGT_HANDLE",
        "device": "VGT_DEVICE",
        "kernel kind": "VGT_KERNEL_KIND",
        "kernel": "VGT_KERNEL",
    }
    if what in known:
        return known[what]
    if kind not in FORMATS:
        return "VGT_FIELD_BYTES"
    if "Dim" in field:
        return "VGT_SMALL"
    return "VGT_ADDRESS" if kind == "uint64_t" else "VGT_NUMBER"


def detail(record: Record, field: str, lengths: list[str]) -> int:
    """What the meaning is of: the kind of a handle, or how many bytes an element of the part has. A record's tail goes
    to its first part; the others are empty."""
    what, of = record.meanings.get(field, ("", ""))
    if what == "length":
        units = {part[0]: ELEMENTS.get(part[1], 1) for part in record.parts}
        if of not in units:  # of the reply
            return 1
        lengths += [of] if of != "attrs" else []  # launch attributes that mean nothing end the session
        shared = sum(part[3] == field for part in record.parts)  # parts of one length, one after the other
        return units[of] * shared if lengths[:1] == [of] else 0
    return KINDS.get(of, 0) if what in ("creates", "uses", "destroys") else 0


def opening() -> bytes:
    """What a session begins with: a context, memory, and POOL objects of each kind."""
    image = {"image": 1, "total": len(IMAGE), "offset": 0, "nbytes": len(IMAGE)}
    calls = [
        ("cuDevicePrimaryCtxRetain", {"pctx": 1, "dev": 0}, b""),
        *(("cuMemAlloc_v2", {"bytesize": nbytes}, b"") for nbytes in (64, 4096, 1 << 16, 1 << 21)),
        ("vgpuImageWrite", image, IMAGE),
        ("cuModuleLoadData", {"module": 1, "image": 1}, b""),
        ("cuModuleGetFunction", {"hfunc": 1, "hmod": 1, "name_nbytes": len(KERNEL)}, KERNEL),
        ("cuLibraryLoadData", {"library": 1, "image": 1}, b""),
        ("cuLibraryGetKernel", {"pKernel": 1, "library": 1, "name_nbytes": len(KERNEL)}, KERNEL),
        ("cuStreamCreateWithPriority", {"phStream": 1, "flags": 1}, b""),
        ("cuEventCreate", {"phEvent": 1}, b""),
        ("cuDeviceGetDefaultMemPool", {"pool_out": 1}, b""),
        ("cuGraphCreate", {"phGraph": 1}, b""),
        ("cuGraphAddEmptyNode", {"phGraphNode": 1, "hGraph": 1}, b""),
        ("cuGraphInstantiateWithFlags", {"phGraphExec": 1, "hGraph": 1}, b""),
    ]
    data = b""
    for number in range(2, POOL + 1):
        calls += [
            ("cuDeviceGetDefaultMemPool", {"pool_out": number}, b""),
            ("cuModuleLoadData", {"module": number, "image": 1}, b""),
            ("cuModuleGetFunction", {"hfunc": number, "hmod": number, "name_nbytes": len(KERNEL)}, KERNEL),
            ("cuLibraryLoadData", {"library": number, "image": 1}, b""),
            ("cuLibraryGetKernel", {"pKernel": number, "library": number, "name_nbytes": len(KERNEL)}, KERNEL),
            ("cuStreamCreateWithPriority", {"phStream": number, "flags": number % 2}, b""),
            ("cuEventCreate", {"phEvent": number}, b""),
            ("cuGraphCreate", {"phGraph": number}, b""),
            ("cuGraphAddEmptyNode", {"phGraphNode": number, "hGraph": number}, b""),
            ("cuGraphInstantiateWithFlags", {"phGraphExec": number, "hGraph": number}, b""),
        ]
    for sequence, (name, fields, tail) in enumerate(calls, 1):
        record = bytearray(encode(name, sequence, 0 if sequence == 1 else 1, fields, tail))
        record[6:8] = struct.pack("<H", WANT_REPLY if BY_NAME[name].waits else 0)
        data += bytes(record)
    return data


def write_grammar(path: Path) -> None:
    fields, records = [], []
    made = {kind for record in RECORDS for what, kind in record.meanings.values() if what == "creates"}
    assert made | {"CONTEXT"} >= set(KINDS), set(KINDS) - made
    for record in RECORDS:
        unmade = {kind for what, kind in record.meanings.values() if what in ("uses", "destroys")} - set(KINDS)
        if record.name in LEFT_OUT or unmade:
            continue
        rare = 4 if any(word in record.name for word in RARE) else 0
        records.append(
            f'    {{"{record.name}", {record.opcode}, {len(fields)}, {len(record.request)}, {int(record.waits)}, '
            f"{int(record.needs_context)}, {rare}}},"
        )
        lengths: list[str] = []
        for _, name in record.request:
            nbytes = f"sizeof ((struct vgw_req_{record.name} *)0)->{name}"
            fields.append(f"    {{{nbytes}, {meaning(record, name)}, {detail(record, name, lengths)}}},")
    lines = [
        "/* Generated from the description by tests/fuzz/in_process.py; do not edit. */",
        f"enum {{ VGT_RECORDS = {len(records)}, VGT_POOL = {POOL} }};",
        f"enum {{ VGT_KIND_STREAM = {KINDS['STREAM']}, VGT_KIND_CONTEXT = {KINDS['CONTEXT']} }};",
        *("static const struct vgt_field vgt_fields[] = {", *fields, "};"),
        *("static const struct vgt_record vgt_records[] = {", *records, "};"),
        "static const uint8_t vgt_opening_records[] = {" + ",".join(map(str, opening())) + "};\n",
    ]
    text = "\n".join(lines)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def build(name: str, *, sanitize: str = "", more: tuple[str, ...] = ()) -> Path:
    """The program's path. Raises subprocess.CalledProcessError."""
    toolchain = Toolchain.from_environment(sanitize, whole_program=False)
    # With so much instrumentation the compiler does not see that what it warns of cannot be.
    toolchain = replace(toolchain, cflags=(*toolchain.cflags, "-Wno-maybe-uninitialized"))
    folder = toolchain.objects(name)
    write_grammar(folder / "vgt_grammar.h")
    includes = [*INCLUDES, folder, HERE / "c"]
    executor = [*sorted((ROOT / "daemon/executor").glob("*.c")), *sorted(GEN.glob("vgx_*.c"))]
    others = [*sorted((ROOT / "daemon/vgpusim/device").glob("*.c")), ROOT / "tests/vgpusim/device/vgt_kernels.c"]
    traced = replace(toolchain, cflags=(*toolchain.cflags, *(flag for flag in more if not flag.startswith("-Wl"))))
    objects = [*traced.compile(executor, folder, includes).values()]
    defined = replace(toolchain, cflags=(*toolchain.cflags, *(flag for flag in more if flag.startswith("-D"))))
    objects += defined.compile([*others, *sorted((HERE / "c").glob("*.c"))], folder, includes).values()
    target = folder / "vgt_fuzz"
    if is_older(target, objects):
        flags = [*toolchain.cflags, *(flag for flag in more if flag == "--coverage" or flag.startswith("-Wl"))]
        subprocess.run([*toolchain.compiler, *flags, *map(str, objects), "-ldl", "-lm", "-o", str(target)], check=True)
    return target


WRAPPED = ["malloc", "calloc", "realloc", "mmap", "memfd_create", "pthread_create", "sendmsg", "fallocate", "mprotect"]


def faults(streams: int) -> int:
    """Have each call that can fail do so, one at a time, in a session of its own, for so many streams of records.

    Returns how many calls failed. Raises RuntimeError, with what repeats it, when a session ends by a signal.
    """
    wrapped = ["-DVGT_FAULTS", *(f"-Wl,--wrap={name}" for name in WRAPPED)]
    program = build("faults", sanitize="address,undefined", more=tuple(wrapped))

    def session(seed: int, fault: str) -> dict[str, int]:
        command = [program, "0", str(seed), str(STEPS), "/dev/null", "--fixed"]
        environment = os.environ | ASAN | {"VGPU_FAULTS": fault}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"VGPU_FAULTS={fault} {' '.join(map(str, command))}: {done.returncode}\n{done.stderr}")
        words = done.stdout.split()
        return {key: int(value) for key, value in zip(words[::2], words[1::2], strict=True)}

    tried = 0
    for seed in range(1, streams + 1):
        counts = session(seed, "none:0")
        for name in WRAPPED:
            for number in range(1, counts[name] + 1):
                session(seed, f"{name}:{number}")
                tried += 1
    print(f"{streams} streams, {tried} calls failed one at a time, no session ended by a signal")
    return tried


ASAN = {"ASAN_OPTIONS": "detect_leaks=0:handle_segv=0:handle_sigbus=0:allow_user_segv_handler=1:abort_on_error=1"}


def run(program: Path, seconds: float, seed: int, replay: str | None = None) -> tuple[int, dict[str, int]]:
    """Its status, and what it counted."""
    crash = program.parent / f"crash-{seed}.bin"
    command = [program, str(seconds), str(seed), str(STEPS), crash, *([replay] if replay else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | ASAN, check=False)
    words = done.stdout.split()
    print(done.stdout, end="")
    return done.returncode, {key: int(value) for key, value in zip(words[::2], words[1::2], strict=False)}


def executed_lines(folder: Path) -> dict[str, tuple[int, int]]:
    """By file of the executor: lines executed, and lines that could be. Raises subprocess.CalledProcessError."""
    notes = sorted(folder.glob("executor-*.gcda"))
    done = subprocess.run(
        ["gcov", "--json-format", "--stdout", *map(str, notes)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines: dict[str, dict[int, bool]] = {}
    for document in done.stdout.splitlines():
        for file in json.loads(document)["files"]:
            if file["file"].endswith(".c") and "executor/" in file["file"]:
                seen = lines.setdefault(Path(file["file"]).name, {})
                for line in file["lines"]:
                    seen[line["line_number"]] = seen.get(line["line_number"], False) or line["count"] > 0
    return {name: (sum(seen.values()), len(seen)) for name, seen in lines.items()}


def read_floor() -> dict[str, int]:
    rows = (line.split("\t") for line in FLOOR.read_text().splitlines() if line and not line.startswith("#"))
    return {name: int(percent) for name, percent in rows}


def measure(seconds: float, seed: int) -> dict[str, int]:
    """Percent of each file's lines that the search executes. Raises RuntimeError when it failed."""
    program = build("fuzz-lines", more=("--coverage", "-fprofile-update=atomic", "-O0", "-fsanitize-coverage=trace-pc"))
    for left in program.parent.glob("*.gcda"):
        left.unlink()
    status, _ = run(program, seconds, seed)
    if status != 0:
        raise RuntimeError(f"the search ended with status {status}: seed {seed}")
    return {name: 100 * hit // all_ for name, (hit, all_) in sorted(executed_lines(program.parent).items())}


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz.in_process")
    parser.add_argument("seconds", type=float, nargs="?", default=60.0)
    parser.add_argument("--sanitize", default="address,undefined", help="as in -fsanitize=; empty: none")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    parser.add_argument("--replay", help="a file that a failure left")
    parser.add_argument("--floor", action="store_true", help="executed lines, compared with floor.tsv")
    parser.add_argument("--faults", type=int, metavar="N", help="fail one call at a time, in N streams")
    given = parser.parse_args()
    if given.faults:
        return 0 if faults(given.faults) else 1
    if given.floor:
        floor, found = read_floor(), measure(given.seconds, given.seed)
        for name, percent in found.items():
            print(f"{name}\t{percent}\tfloor {floor.get(name, 'none')}")
        return any(found.get(name, 0) < percent for name, percent in floor.items())
    program = build("fuzz", sanitize=given.sanitize, more=("-fsanitize-coverage=trace-pc",))
    return run(program, given.seconds, given.seed, given.replay)[0]


if __name__ == "__main__":
    sys.exit(main())
