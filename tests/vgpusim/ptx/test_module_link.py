"""Modules of several texts: which definition a name refers to."""

from __future__ import annotations

import numpy as np
import pytest
from vgpusim.codegen.compile import PtxError, PtxModule

from tests.vgpusim.codegen.harness import HEADER, run

SCALE = "(.param .b32 r) scale(.param .b32 x)"
PROTOTYPE = f".extern .func {SCALE};\n"


def scale(factor: int, linkage: str = ".visible", body: str = "") -> str:
    return f"""{linkage} .func {SCALE} {{ .reg .b32 %a; ld.param.u32 %a, [x]; mul.lo.u32 %a, %a, {factor}; {body}
    st.param.b32 [r], %a; ret; }}\n"""


def kernel(name: str = "k", body: str = "") -> str:
    return f""".visible .entry {name}(.param .u64 out) {{ .reg .b32 %t, %c; .reg .b64 %o; mov.u32 %t, %tid.x;
    ld.param.u64 %o, [out]; mad.wide.u32 %o, %t, 4, %o; {{ .param .b32 p; .param .b32 q; st.param.b32 [p], %t;
    call (q), scale, (p); ld.param.b32 %t, [q]; }} {body} st.global.u32 [%o], %t; ret; }}\n"""


def launch(*bodies: str, name: str = "k") -> np.ndarray:
    out = np.zeros(32, np.int32)
    assert not run(tuple(HEADER + body for body in bodies), name, 1, 32, [out]).failed
    return out


def refused(*bodies: str) -> PtxError:
    with pytest.raises(PtxError) as caught:
        PtxModule.link([HEADER + body for body in bodies])
    return caught.value


T = np.arange(32)


@pytest.mark.parametrize("order", [1, -1])
def test_functions_and_variables_of_other_texts(order: int) -> None:
    user = (
        PROTOTYPE
        + ".extern .global .align 4 .u32 shift[4];\n"
        + kernel(body="ld.global.u32 %c, [shift+8]; add.u32 %t, %t, %c;")
    )
    owner = scale(3) + ".visible .global .align 4 .u32 shift[4] = {1, 2, 500, 4};\n"
    assert np.array_equal(launch(*[user, owner][::order]), 3 * T + 500)
    module = PtxModule.link([HEADER + user, HEADER + owner])
    assert [v.name for v in module.variables if v.nbytes == 16 and v.name == "shift"] == ["shift"]


def test_names_that_belong_to_their_text() -> None:
    """Each text has a `scale` and a `step` of its own; neither is visible."""
    step = "\n.global .u32 step = {};\n".format
    use = "ld.global.u32 %c, [step]; add.u32 %t, %t, %c;"
    texts = [step(10) + scale(2, "") + kernel("a", use), step(20) + scale(5, "") + kernel("b", use)]
    assert np.array_equal(launch(*texts, name="a"), 2 * T + 10)
    assert np.array_equal(launch(*texts, name="b"), 5 * T + 20)


def test_weak_definitions_give_way() -> None:
    user = PROTOTYPE + kernel()
    for texts in ([scale(2, ".weak"), scale(7), user], [scale(7), scale(2, ".weak"), user]):
        assert np.array_equal(launch(*texts), 7 * T)
    assert np.array_equal(launch(user, scale(2, ".weak"), scale(3, ".weak")), 2 * T)
    text = scale(4, ".weak") + kernel().replace(".visible", ".weak")
    assert PtxModule.link([HEADER + text] * 3).entries == ["k"]


def test_pointers_to_functions_of_other_texts() -> None:
    user = (
        PROTOTYPE
        + """.global .u64 chosen = scale;\n"""
        + kernel(
            body="""{ .reg .b64 %f; .param .b32 p; .param .b32 q; ld.global.u64 %f, [chosen]; st.param.b32 [p], %t;
        form: .callprototype (.param .b32 _) _ (.param .b32 _); call (q), %f, (p), form; ld.param.b32 %t, [q]; }"""
        )
    )
    assert np.array_equal(launch(user, scale(6)), 36 * T)


def test_dynamic_shared_memory_is_one_for_all_texts() -> None:
    declare = ".extern .shared .align 16 .b8 pool[];\n"
    owner = declare + scale(2, body="st.shared.u32 [pool], %a;")
    user = declare + PROTOTYPE + kernel(body="bar.warp.sync -1; ld.shared.u32 %t, [pool];")
    out = np.zeros(32, np.int32)
    run((HEADER + user, HEADER + owner), "k", 1, 32, [out], shared=64)
    assert (out == out[0]).all()
    assert out[0] in 2 * T


def test_alias() -> None:
    text = scale(9).replace("scale", "original") + f".visible .func {SCALE};\n.alias scale, original;\n"
    assert np.array_equal(launch(PROTOTYPE + kernel(), text), 9 * T)


@pytest.mark.parametrize(
    ("bodies", "message"),
    [
        ((scale(1), scale(2)), "scale is defined in two texts"),
        ((".visible .global .u32 x;\n", ".visible .global .u32 x;\n"), "x is defined in two texts"),
        ((kernel() + scale(1, ""), kernel() + scale(1, "")), "k is defined in two texts"),
        ((".extern .global .u32 x;\n", ".global .u32 x;\n"), "Undefined reference to 'x'"),
        ((".extern .const .u32 x;\n",), "Undefined reference to 'x'"),
        ((".global .u32 x;\n.global .u32 x;\n",), "x is declared twice"),
        ((".alias one, other;\n",), "other is not a function"),
    ],
)
def test_what_does_not_link(bodies: tuple[str, ...], message: str) -> None:
    error = refused(*bodies)
    assert error.result == 218
    assert message in str(error)


def test_a_function_defined_nowhere_is_refused() -> None:
    error = refused(PROTOTYPE + kernel(), scale(1, "").replace("scale", "other"), scale(2, ""))
    assert error.result == 218
    assert str(error) == "Undefined reference to 'scale'"


def test_in_a_large_text_it_is_refused_when_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vgpusim.ptx.module.EAGER_TEXT_NBYTES", 0)
    texts = (PROTOTYPE + kernel(), scale(2, "").replace("scale", "far"))
    assert PtxModule.link([HEADER + text for text in texts]).entries == ["k"]
    with pytest.raises(PtxError, match="Unresolved extern function 'scale'") as caught:
        launch(*texts)
    assert caught.value.result == 218
