"""The device runtime: what a kernel's launches of kernels and barriers of grids call, in place of libcudadevrt's
functions of these names.

NVIDIA's library is written for a card's own queues. Each function here asks the driver (services->device_runtime, by
the builtin vgpu_device_runtime): a question's number, then up to five 64-bit values. The answer is one 64-bit value;
where its lower half is the value, its upper half is an error."""

from __future__ import annotations

ASK = "vgpu_device_runtime"
ARGUMENTS = 6  # the question, and five values
_BUFFER, _LAUNCH, _ATTRIBUTE, _DEVICE, _OBJECT, _COPY, _FILL, _ERROR = range(8)  # vgx_sim_child.c
_OUT_OF_MEMORY = 2


def _function(name: str, result: str, params: str, body: str) -> str:
    """`params`: types; a "dim3" is 12 bytes. Parameter i is in %r<i> or %d<i>, a dim3 in %r<i>0 to %r<i>2."""
    listed, loads = [], []
    for i, kind in enumerate(params.split()):
        if kind == "dim3":
            listed.append(f".param .align 4 .b8 p{i}[12]")
            loads += [f"ld.param.b32 %r{i}{k}, [p{i}+{4 * k}];" for k in range(3)]
        else:
            listed.append(f".param .{kind} p{i}")
            loads.append(f"ld.param.{kind} %{'r' if kind == 'b32' else 'd'}{i}, [p{i}];")
    return (
        f".visible .func (.param .{result} result) {name}({', '.join(listed)})\n{{\n"
        ".reg .b32 %r<40>; .reg .b64 %d<10>; .reg .b32 %e; .reg .b32 %v; .reg .b64 %a<6>; .reg .pred %p;\n"
        f"{' '.join(loads)}\n{body}\nret;\n}}\n"
    )


def _ask(question: int, *values: str) -> str:
    """The answer is in %a0, its halves in %v and %e."""
    given = [*values, *["0"] * (ARGUMENTS - 1 - len(values))]
    params = [".param .b32 q0;", f"st.param.b32 [q0], {question};"]
    for i, value in enumerate(given, 1):
        params += [f".param .b64 q{i};", f"st.param.b64 [q{i}], {value};"]
    names = ", ".join(f"q{i}" for i in range(ARGUMENTS))
    return (
        f"{{ {' '.join(params)} .param .b64 answer;\ncall.uni (answer), {ASK}, ({names});\n"
        "ld.param.b64 %a0, [answer]; }\nmov.b64 {%v, %e}, %a0;"
    )


_RESULT = "st.param.b32 [result], %e;"
_NONE = "st.param.b32 [result], 0;"
_STORED = f"setp.ne.b32 %p, %e, 0; @%p bra $failed; st.b32 [%d0], %v;\n$failed: {_RESULT}"
_MADE = f"{_ask(_OBJECT)}\nst.b64 [%d0], %a0; {_NONE}"

# A barrier over the grid, the algorithm of CUDA's own header (cooperative_groups/details/helpers.h): blocks add to the
# second word of the grid's workspace, whose highest bit changes when the last block arrives. The grid's handle is the
# address of the workspace.
_SYNCHRONIZE = """setp.eq.b64 %p, %d0, 0; @%p bra $failed;
bar.sync 0;
mov.u32 %r2, %tid.x; mov.u32 %r3, %tid.y; or.b32 %r2, %r2, %r3; mov.u32 %r3, %tid.z; or.b32 %r2, %r2, %r3;
setp.ne.u32 %p, %r2, 0; @%p bra $reached;
mov.u32 %r2, %nctaid.x; mov.u32 %r3, %nctaid.y; mul.lo.u32 %r2, %r2, %r3; mov.u32 %r3, %nctaid.z;
mul.lo.u32 %r2, %r2, %r3; sub.u32 %r2, 0x80000001, %r2;
mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ctaid.y; or.b32 %r3, %r3, %r4; mov.u32 %r4, %ctaid.z; or.b32 %r3, %r3, %r4;
setp.eq.u32 %p, %r3, 0; selp.b32 %r2, %r2, 1, %p;
membar.gl;
atom.add.u32 %r3, [%d0+4], %r2;
$spin: ld.volatile.u32 %r4, [%d0+4]; xor.b32 %r4, %r4, %r3; setp.ge.s32 %p, %r4, 0; @%p bra $spin;
membar.gl;
$reached: bar.sync 0;
st.param.b32 [result], 0; ret;
$failed: st.param.b32 [result], 1;"""

_FUNCTIONS = {
    "__cudaCDP2GetParameterBufferV2": (
        "b64",
        "b64 dim3 dim3 b32",
        "mov.b64 %a1, {%r10, %r11}; mov.b64 %a2, {%r12, %r20}; mov.b64 %a3, {%r21, %r22}; cvt.u64.u32 %a4, %r3;\n"
        f"{_ask(_BUFFER, '%d0', '%a1', '%a2', '%a3', '%a4')}\nst.param.b64 [result], %a0;",
    ),
    "__cudaCDP2LaunchDeviceV2": ("b32", "b64 b64", f"{_ask(_LAUNCH, '%d0', '%d1')}\n{_RESULT}"),
    "__cudaCDP2DeviceGetAttribute": (
        "b32",
        "b64 b32 b32",
        f"cvt.u64.u32 %a1, %r1; cvt.u64.u32 %a2, %r2;\n{_ask(_ATTRIBUTE, '%a1', '%a2')}\n{_STORED}",
    ),
    "__cudaCDP2GetDevice": ("b32", "b64", f"{_ask(_DEVICE)}\n{_STORED}"),
    "__cudaCDP2GetLastError": ("b32", "", f"{_ask(_ERROR, '1')}\n{_RESULT}"),
    "__cudaCDP2PeekAtLastError": ("b32", "", f"{_ask(_ERROR)}\n{_RESULT}"),
    "__cudaCDP2StreamCreateWithFlags": ("b32", "b64 b32", _MADE),
    "__cudaCDP2EventCreateWithFlags": ("b32", "b64 b32", _MADE),
    "__cudaCDP2StreamDestroy": ("b32", "b64", _NONE),
    "__cudaCDP2StreamWaitEvent": ("b32", "b64 b64 b32", _NONE),  # all work is done in the order of the calls
    "__cudaCDP2EventRecord": ("b32", "b64 b64", _NONE),
    "__cudaCDP2EventRecordWithFlags": ("b32", "b64 b64 b32", _NONE),
    "__cudaCDP2EventDestroy": ("b32", "b64", _NONE),
    "__cudaCDP2MemcpyAsync": ("b32", "b64 b64 b64 b32 b64", f"{_ask(_COPY, '%d0', '%d1', '%d2')}\n{_RESULT}"),
    "__cudaCDP2MemsetAsync": (
        "b32",
        "b64 b32 b64 b64",
        f"cvt.u64.u32 %a1, %r1;\n{_ask(_FILL, '%d0', '%a1', '%d2')}\n{_RESULT}",
    ),
    "__cudaCDP2Malloc": (
        "b32",
        "b64 b64",
        "{ .param .b64 q0; st.param.b64 [q0], %d1; .param .b64 answer; call.uni (answer), malloc, (q0);\n"
        "ld.param.b64 %a0, [answer]; }\nst.b64 [%d0], %a0; setp.eq.b64 %p, %a0, 0;\n"
        f"selp.b32 %e, {_OUT_OF_MEMORY}, 0, %p; {_RESULT}",
    ),
    "cudaCGGetIntrinsicHandle": (  # of the grid (1); others are not of one device
        "b64",
        "b32",
        "mov.b32 %r1, %envreg2; mov.b32 %r2, %envreg1; mov.b64 %a0, {%r1, %r2}; setp.eq.u32 %p, %r0, 1;\n"
        "selp.b64 %a0, %a0, 0, %p; st.param.b64 [result], %a0;",
    ),
    "cudaCGSynchronize": ("b32", "b64 b32", _SYNCHRONIZE),
    "__cudaCDP2Free": ("b32", "b64", "{ .param .b64 q0; st.param.b64 [q0], %d0; call.uni free, (q0); }\n" + _NONE),
}

NAMES = frozenset(_FUNCTIONS)

_EXTERN = ", ".join(f".param .{'b64' if i else 'b32'} a{i}" for i in range(ARGUMENTS))
TEXT = (
    ".version 8.0\n.target sm_50\n.address_size 64\n"
    f".extern .func (.param .b64 r) {ASK}({_EXTERN});\n"
    ".extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 p);\n"
    + "".join(_function(name, *rest) for name, rest in _FUNCTIONS.items())
)
