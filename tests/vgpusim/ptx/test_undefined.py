"""What is defined nowhere is judged as NVIDIA's ptxas and nvJitLink of 13.0 judge it (each case was given to both)."""

from __future__ import annotations

import pytest
from vgpusim.codegen.inline import BUILTINS
from vgpusim.ptx.error import PtxError
from vgpusim.ptx.module import PtxModule
from vgpusim.ptx.undefined import Rule, is_drivers

from tests.gpu.jit_errors import CALL, HEADER, PROTOTYPE, VARIABLE, kernel

HELPER = "func helper() { .reg .b32 %r<3>; mov.u32 %r1, 3; " + CALL + " ret; }\n"
ADDRESS = "{ .reg .u64 %f; mov.u64 %f, absent; st.global.u64 [%rd1], %f; }"
CALLED, REFERENCE = "Unresolved extern function 'absent'", "Undefined reference to 'absent'"
NOWHERE = "Undefined reference to 'nowhere'"

# name: the text; then what a whole program, a part of a link and the link's result say, "" for nothing
CASES = {
    "called": (PROTOTYPE + kernel(CALL), CALLED, "", REFERENCE),
    "declared": (PROTOTYPE + kernel(), "", "", ""),
    "called by dead code": (PROTOTYPE + "." + HELPER + kernel(), CALLED, "", ""),
    "called by a function that no kernel calls": (PROTOTYPE + ".visible ." + HELPER + kernel(), CALLED, "", ""),
    "called by a function": (PROTOTYPE + "." + HELPER + kernel("call.uni helper;"), CALLED, "", REFERENCE),
    "called where nothing goes": (PROTOTYPE + kernel("bra.uni END; " + CALL + " END:"), CALLED, "", REFERENCE),
    "its address": (PROTOTYPE + kernel(ADDRESS), CALLED, "", REFERENCE),
    "its address at the start": (PROTOTYPE + ".global .u64 v = absent;\n" + kernel(), CALLED, "", REFERENCE),
    "not extern": (PROTOTYPE.replace(".extern ", "") + kernel(CALL), CALLED, CALLED, REFERENCE),
    "visible": (PROTOTYPE.replace("extern", "visible") + kernel(CALL), CALLED, CALLED, REFERENCE),
    "variable": (VARIABLE + kernel("ld.global.u32 %r2, [nowhere];"), "", "", NOWHERE),
    "variable, declared": (VARIABLE + kernel(), "", "", NOWHERE),
    "variable without size": (
        ".extern .global .align 4 .b8 nowhere[];\n" + kernel(),
        "Unresolved extern variable 'nowhere'",
        "",
        NOWHERE,
    ),
    "dynamic shared memory": (".extern .shared .align 4 .b8 nowhere[];\n" + kernel(), "", "", ""),
}


@pytest.mark.parametrize("name", CASES)
def test_what_each_says(name: str) -> None:
    text, *said = CASES[name]
    for rule, expected in zip((Rule.WHOLE, Rule.PART, Rule.LINKED), said, strict=True):
        message, result = "", 218
        try:
            PtxModule.link([HEADER + text], rule)
        except PtxError as error:
            message, result = str(error), error.result
        assert (rule, message, result) == (rule, expected, 218)


def test_an_undefined_variable_of_a_whole_program_is_its_own() -> None:
    [variable] = PtxModule.parse(HEADER + VARIABLE + kernel()).variables
    assert (variable.name, variable.nbytes) == ("nowhere", 4)


def test_all_are_named() -> None:
    text = HEADER + PROTOTYPE + VARIABLE + kernel(CALL)
    with pytest.raises(PtxError, match="'nowhere'; Undefined reference to 'absent'"):
        PtxModule.link([text])


def test_what_the_driver_has_is_not_undefined() -> None:
    """What the simulator serves, and what it refuses by name when a kernel calls it (801)."""
    assert all(is_drivers(name) for name in BUILTINS)
    text = HEADER + (PROTOTYPE + kernel(CALL)).replace("absent", "__cuda_syscall_other")
    for rule in Rule:
        assert PtxModule.link([text], rule).entries == ["k"]
