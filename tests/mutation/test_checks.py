"""Each hand-written check of the cursor, the rings and the handles is needed: without the check a test fails.

A mutant is a source with one text replaced by another. test_dispatcher.py does the same to the generated dispatcher.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from protocol.gen.load import Api, load
from tests.mutation.mutant import noticed
from tests.protocol.records import Dispatcher, cases, compile_part, compile_parts, link, travelling
from tests.protocol.rings import SCENES

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests/protocol"
INCLUDES = [f"-I{ROOT / name}" for name in ("daemon/executor", "protocol/c", "build/gen")]

CURSOR = [
    ("c->fatal || ", ""),
    ("nbytes > (uint64_t)(c->end - c->cur)", "c->cur + nbytes > c->end"),
    ("nbytes > (uint64_t)(c->end - c->cur)", "(uint32_t)nbytes > (uint64_t)(c->end - c->cur)"),
    ("|| nbytes > (uint64_t)(c->end - c->cur)", ""),
    ("    c->fatal = true;\n", ""),
    ("c->cur += padded < left ? padded : left", "c->cur += padded"),
    ("c->cur == c->end && c->more", "c->more"),
    ("    c->more = NULL;\n", ""),
]
RING = [
    ("pushed > VGW_RING_NBYTES || ", ""),
    ("|| pushed % 8 ", ""),
    (" || pushed < 8", ""),
    ("in_one_piece < sizeof *header", "false"),
    ("uint64_t most = pushed < in_one_piece ? pushed : in_one_piece;", "uint64_t most = in_one_piece;"),
    ("uint64_t most = pushed < in_one_piece ? pushed : in_one_piece;", "uint64_t most = pushed;"),
    ("header->opcode != VGW_RING_PADDING && most > VGW_RING_RECORD_NBYTES", "false"),
    ("ring->is_short && most > sizeof ring->copy", "false"),
    ("header->length < sizeof *header || ", ""),
    ("header->length > most || ", ""),
    (" || header->length % 8", ""),
    (
        "header->opcode < VGW_OP_COUNT ? &vgx_operations[header->opcode] : NULL",
        "&vgx_operations[header->opcode % VGW_OP_COUNT]",
    ),
    ("!op || !op->dispatch ||", "!op ||"),
    ("|| header->flags & VGW_HAS_FD ", ""),
    (" || op->flags & VGX_NOT_IN_RING", ""),
]
HANDLES = {
    "vgx_handle.c": [
        ("if (!is_object(found))", "if (false)"),
        ("names[i] = id ? vgx_name_of(kinds[i], id) : 0;", "names[i] = id ? vgx_name_make(kinds[i], id) : 0;"),
        ("if (!found && ", "if (false && "),
        ("kinds[i] != VGW_KIND_FUNCTION && kinds[i] != VGW_KIND_KERNEL", "false"),
        ("entered != CUDA_SUCCESS && op->flags & VGX_NEEDS_CONTEXT", "false"),
        (
            "id ? load(s, kind, vgx_name_of(kind, id), &found[i]) : CUDA_ERROR_INVALID_VALUE",
            "load(s, kind, vgx_name_of(kind, id), &found[i])",
        ),
        ("id != 0 && id < VGX_LEAVES", "id < VGX_LEAVES"),
        (" && id <= 2 * t->used + SLACK", ""),
        ("} else if (!atomic_load_explicit(place, memory_order_relaxed)) {", "} else {"),
        ("    put(&t->held, names[i]);\n", ""),
        ("put(&t->held, context_id ? context_name : 0);", "put(&t->held, 0);"),
    ],
    "vgx_handle_end.c": [
        ("return false;\n    }\n  return true;", "return true;\n    }\n  return true;"),
        ("vgx_name_of(kind, id)", "vgx_name_make(kind, id)"),
        ("owner && vgx_name_kind(owner) != VGW_KIND_CONTEXT && kind != VGW_KIND_GRAPH_NODE", "false"),
        ("object == &vgx_place_destroyed || ", ""),
        ("all &= mark_locked(s, root, name);", "all = true;"),
        ("return all && is_unused_locked(s, root);", "return all;"),
        ("    atomic_store_explicit(vgx_place(s, name), link->object, memory_order_release);\n", ""),
    ],
    "vgx_execute.c": [
        ("if (!fixed)\n    return vgx_violation", "if (false)\n    return vgx_violation"),
        ("  vgx_record_unref(t);\n  if", "  if"),
        ("    pthread_mutex_lock(&t->s->alone_lock);", "    ;"),
    ],
}


def mutate(source: Path, old: str, new: str, folder: Path) -> Path:
    text = source.read_text()
    assert text.count(old) >= 1, f"{source.name} has no {old!r}: bring the list of mutants up to date"
    changed = folder / source.name
    changed.write_text(text.replace(old, new, 1))
    return changed


def passes(program: Path, folder: Path) -> bool:
    """Compile a program, with the files in `folder` in place of the tree's; whether it runs and exits with 0."""
    binary = folder / "program"
    command = ["gcc", "-std=gnu11", "-O1", "-w", "-pthread", f"-I{folder}", *INCLUDES, str(program), "-o", str(binary)]
    subprocess.run(command, check=True)
    return subprocess.run([binary], timeout=60, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("program", "source", "mutants"),
    [
        ("vgt_cursor.c", ROOT / "protocol/c/vgw_wire.h", CURSOR),
        ("vgt_ring.c", ROOT / "daemon/executor/vgx_ring.c", RING),
    ],
    ids=["cursor", "ring"],
)
def test_checks_of(program, source, mutants, tmp_path) -> None:
    assert passes(PROGRAMS / program, tmp_path)
    survivors = []
    for old, new in mutants:
        changed = mutate(source, old, new, tmp_path)
        if passes(PROGRAMS / program, tmp_path):
            survivors.append((old, new))
        changed.unlink()
    assert survivors == []


@pytest.fixture(scope="module")
def api() -> Api:
    return load()


@pytest.fixture(scope="module")
def parts(api: Api, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return compile_parts(api, tmp_path_factory.mktemp("parts"))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [(name, old, new) for name, mutants in HANDLES.items() for old, new in mutants],
    ids=lambda value: value[:40],
)
@pytest.mark.control("AT10")
def test_checks_of_handles(name, old, new, api, parts, tmp_path) -> None:
    """With the changed source, a record gets a wrong answer, or a scene of two rings that use one object fails."""
    shutil.copy(parts[name].parent / "guard.h", tmp_path)
    changed = parts | {name: compile_part(mutate(ROOT / "daemon/executor" / name, old, new, tmp_path), tmp_path)}
    library = link(changed, tmp_path / "mutant.so")

    def fails() -> bool:
        dispatcher = Dispatcher(library)
        faults = (case.fault(dispatcher) for record in travelling() for case in cases(record, api, dispatcher))
        return any(faults) or any(scene.fault(dispatcher) for scene in SCENES)

    assert noticed(lambda: True, fails)
