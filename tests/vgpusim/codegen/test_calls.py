"""Calls through pointers to functions, and variables that belong to functions."""

from __future__ import annotations

import numpy as np
import pytest
from vgpusim.codegen.compile import DiskCache, PtxError, PtxModule, compile_entry
from vgpusim.ptx import ir
from vgpusim.ptx import module as ptx_module
from vgpusim.ptx.module import FUNCTION_NBYTES, FUNCTIONS

from tests.vgpusim.codegen.harness import HEADER, run

FORM = "(.param .b32 _) _ (.param .b32 _)"
BODIES = "".join(
    f".func (.param .b32 r) {name}(.param .b32 x) {{ .reg .b32 %a; ld.param.u32 %a, [x]; {body} "
    "st.param.b32 [r], %a; ret; }\n"
    for name, body in (("twice", "shl.b32 %a, %a, 1;"), ("plus", "add.u32 %a, %a, 1000;"), ("minus", "neg.s32 %a, %a;"))
)  # fmt: skip
TABLE = ".global .align 8 .u64 table[3] = {twice, generic(plus), minus};\n"
CALL = f"""{{ .param .b32 p; .param .b32 q; st.param.b32 [p], %t; form: .callprototype {FORM};
call (q), %f, (p), form; ld.param.b32 %t, [q]; }}"""


def kernel(body: str, declare: str = TABLE, name: str = "k") -> str:
    return (
        f"{HEADER}{BODIES}{declare}.visible .entry {name}(.param .u64 out, .param .u64 given) {{ .reg .b32 %t, %i, %r;"
        f".reg .b64 %o, %f, %g; .reg .pred %p; mov.u32 %t, %tid.x; ld.param.u64 %o, [out]; ld.param.u64 %g, [given];"
        f"mad.wide.u32 %o, %t, 4, %o;\n{body}\nst.global.u32 [%o], %t; ret; }}"
    )


def expected(which: np.ndarray, t: np.ndarray) -> np.ndarray:
    return np.select([which == 0, which == 1], [2 * t, t + 1000], -t).astype(np.int32)


def launch(text: str, given: object = 0) -> tuple[np.ndarray, object]:
    out = np.zeros(64, np.int32)
    events = run(text, "k", 1, 64, [out, given])
    return out, events


def test_lanes_call_different_functions() -> None:
    text = kernel(f"rem.u32 %i, %t, 3; mov.u64 %f, table; mad.wide.u32 %f, %i, 8, %f; ld.global.u64 %f, [%f]; {CALL}")
    out, events = launch(text)
    t = np.arange(64)
    assert not events.failed
    assert np.array_equal(out, expected(t % 3, t))


def test_pointers_from_registers_and_memory_in_a_loop() -> None:
    """A pointer chosen by select, called again and again with its own result; a null pointer is never called."""
    body = f"""mov.u64 %f, plus; mov.u64 %g, twice; and.b32 %i, %t, 1; setp.eq.u32 %p, %i, 0; selp.b64 %f, %f, %g, %p;
    mov.u32 %i, 3; $again: {CALL} sub.u32 %i, %i, 1; setp.ne.u32 %p, %i, 0; @%p bra $again;
    mov.u64 %f, 0; setp.ne.u64 %p, %f, 0; @%p bra $null; bra $end; $null: {CALL} $end:"""
    out, events = launch(kernel(body, ""))
    assert not events.failed
    t = np.arange(64)
    assert np.array_equal(out, np.where(t % 2 == 0, t + 3000, t * 8))


def test_addresses_written_byte_by_byte() -> None:
    """A function's address written as eight masked bytes, as LLVM initialises packed structs."""
    masks = ", ".join(f"{0xFF << 8 * i:#X}(plus)".replace("0X", "0x") for i in range(8))
    declare = f".global .align 8 .b8 packed[24] = {{1, 2, 3, 4, 5, 6, 7, 8, {masks}, 9}};\n"
    text = kernel(f"mov.u64 %f, packed; ld.global.u8 %i, [%f+16]; ld.global.u64 %f, [%f+8]; {CALL} add.u32 %t, %t, %i;",
                  declare)  # fmt: skip
    out, events = launch(text)
    assert not events.failed
    assert np.array_equal(out, np.arange(64) + 1009)
    for damaged in (masks.replace("(plus)", "(minus)", 1), masks.replace("0xFF00(", "0xFF(")):
        with pytest.raises(PtxError, match="eight bytes"):
            PtxModule.parse(text.replace(masks, damaged))


def test_pointers_kept_between_kernels() -> None:
    """A kernel may call a pointer that another kernel stored, though only that kernel takes the function's address."""
    take = "mov.u64 %f, minus; st.global.u64 [%g], %f;"
    text = kernel(f"ld.global.u64 %f, [%g]; {CALL}", "") + kernel(take, "", "take").removeprefix(HEADER + BODIES)
    module = PtxModule.parse(text)
    assert [f.name for f in module.reachable("k")] == ["k", "minus"]
    assert module.address_of(ir.Symbol("minus", 4)) == ir.Symbol(FUNCTIONS, 4 * FUNCTION_NBYTES + 4)


def test_listed_targets_only() -> None:
    body = f"mov.u64 %f, twice; {CALL.replace(f'.callprototype {FORM}', '.calltargets twice, minus')}"
    out, events = launch(kernel(body))
    assert not events.failed
    assert np.array_equal(out, 2 * np.arange(64))
    assert "plus" not in [f.name for f in PtxModule.parse(kernel(body, "")).reachable("k")]


def test_only_functions_of_the_form_are_called() -> None:
    """`wide` has its address taken as well, but its parameter has another size."""
    other = ".func (.param .b32 r) wide(.param .b64 x) { ret; }\n.global .u64 wides = wide;\n"
    text = kernel(f"mov.u64 %f, plus; {CALL}", other + TABLE)
    assert [f.name for f in PtxModule.parse(text).reachable("k")] == ["k", "twice", "plus", "minus"]
    assert np.array_equal(launch(text)[0], np.arange(64) + 1000)


def test_more_functions_than_a_kernel_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL's kernels name hundreds of functions: a launch asks for the function, naming the call, only if it reaches a
    pointer call, and is compiled with it then."""
    monkeypatch.setattr(ptx_module, "FOLLOWED_NBYTES", len(BODIES) // 2)
    some = kernel(f"mov.u64 %f, table; ld.global.u64 %f, [%f]; setp.ne.u64 %p, %g, 0; @%p bra $end; {CALL} $end:")
    assert [f.name for f in PtxModule.parse(some).reachable("k")] == ["k"]
    out, events = launch(some, 1)
    assert not events.failed
    assert np.array_equal(out, np.arange(64))
    _, events = launch(some, 0)
    ((offset, message, changed), *_) = events.absent
    assert offset == FUNCTION_NBYTES
    assert b"call through a pointer" in message
    assert not changed
    module = PtxModule.parse(some)
    assert [f.name for f in module.following([offset]).reachable("k")] == ["k", "twice"]
    for wrong in (offset + 4, 0, 4 * FUNCTION_NBYTES, -FUNCTION_NBYTES):
        assert [f.name for f in module.following([wrong]).reachable("k")] == ["k"]
    assert [f.name for f in module.reachable("k")] == ["k"]
    assert not launch(kernel(f"mov.u64 %f, twice; {CALL.replace(f'.callprototype {FORM}', '.calltargets twice')}"))[
        1
    ].failed


@pytest.mark.parametrize("pointer", ["0", "12345", "twice+1"])
def test_a_pointer_to_no_function_fails_the_launch(pointer: str) -> None:
    _, events = launch(kernel(f"mov.u64 %f, {pointer}; {CALL}"))
    ((result, message), *_) = events.failed
    assert result == 719
    assert b"not a function of this form" in message


def test_recursion_through_a_pointer() -> None:
    """Threads 60 to 63 recurse once; the other threads do not."""
    again = f"""(.param .b32 r) again(.param .b32 x) {{ .reg .b32 %t; .reg .b64 %f; .reg .pred %p;
    ld.param.u32 %t, [x]; setp.lt.u32 %p, %t, 60; @%p bra $end; sub.u32 %t, %t, 60;
    mov.u64 %f, again; {CALL}
    $end: st.param.b32 [r], %t; ret; }}\n"""
    text = kernel(f"mov.u64 %f, again; {CALL}", f".func (.param .b32 r) again(.param .b32 x);\n.func {again}")
    out, events = launch(text)
    assert not events.failed
    assert np.array_equal(out, np.arange(64) % 60)


def test_functions_without_a_body_have_no_address() -> None:
    declare = ".extern .func (.param .b32 r) absent(.param .b32 x);\n"
    for text in (kernel(f"mov.u64 %f, absent; {CALL}", declare), kernel("", declare + ".global .u64 p = absent;\n")):
        with pytest.raises(PtxError, match="Unresolved extern function 'absent'") as caught:
            PtxModule.parse(text)
        assert caught.value.result == 218


def test_cached_code_depends_on_where_functions_are(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """The same kernel text with another function before it: function addresses differ, and so does the code."""
    cache = DiskCache(tmp_path)
    body = "mov.u64 %f, plus; st.global.u64 [%g], %f;"
    moved = ".func first() { ret; }\n"
    texts = [kernel(body, ""), kernel(body, "").replace(BODIES, moved + BODIES)]
    first, second = (compile_entry(PtxModule.parse(text), "k", (32, 1, 1), cache=cache).object_code for text in texts)
    assert first != second


def test_variables_of_functions() -> None:
    """A .global and a .const declared in function bodies have one instance each, which is kept between launches and is
    distinct from variables of the same name in other bodies."""
    count = """.func (.reg .b32 %c) count() { .global .align 4 .u32 counter = 5; .const .u32 step[2] = {1, 100};
    .reg .b32 %s; ld.const.u32 %s, [step+4]; atom.global.add.u32 %c, [counter], %s; ret; }\n"""
    body = """.global .u32 counter = 7000; .reg .b32 %n; call (%i), count, (); ld.global.u32 %n, [counter];
    add.u32 %t, %i, %n;"""
    text = kernel(body, count)
    module = PtxModule.parse(text)
    assert {v.name: v.space for v in module.variables if v.name.endswith(("counter", "step"))} == {
        "count:counter": "global", "count:step": "const", "k:counter": "global",
    }  # fmt: skip
    out, _ = launch(text)
    assert sorted(out) == [7005 + 100 * i for i in range(64)]


def test_variables_of_functions_in_large_modules() -> None:
    """Function bodies that declare variables are parsed at load, whatever the module's size."""
    text = kernel(".global .u32 counter = 9; ld.global.u32 %t, [counter];") + "\n// " + "x" * (256 << 10)
    assert [v.name for v in PtxModule.parse(text).variables][-1] == "k:counter"
    assert (launch(text)[0] == 9).all()
