"""Words of memory that streams wait for and write, and attributes of streams."""

from protocol.gen.dsl import (
    DEVICEPTR,
    I32,
    INVALID_VALUE,
    QUEUED,
    STREAM,
    U32,
    U64,
    WAITING,
    array_in,
    fn,
    handle,
    struct_in,
    struct_out,
    val,
)

STREAM_ARG = handle("stream", STREAM)
WORDS_MAX = 256  # the driver's own limit

for bits, scalar in ((32, U32), (64, U64)):
    nbytes = bits // 8
    for verb, what in (("Wait", "Hold a stream until a word is as asked."), ("Write", "Write a word in stream order.")):
        fn(
            f"cuStream{verb}Value{bits}_v2",
            [
                STREAM_ARG,
                val("addr", DEVICEPTR, sent=f"vgs_word_address(addr, {nbytes})"),
                val("value", scalar),
                val("flags", U32),
            ],
            QUEUED,
            refuses={f"!vgs_word_address(addr, {nbytes})": INVALID_VALUE},
            checks=["vgs_mirror_flush_host()"],
            client_after="vgs_mirror_submitted()",
            aliases=[f"cuStream{verb}Value{bits}"],
            doc=what,
            group="memops",
        )
fn(
    "cuStreamBatchMemOp_v2",
    [
        STREAM_ARG,
        val("count", U32, most=WORDS_MAX, nonzero=True),
        array_in("paramArray", "CUstreamBatchMemOpParams", "count", WORDS_MAX),
        val("flags", U32, mask=0),
    ],
    WAITING,
    refuses={"!vgs_words_are_known(paramArray, count)": INVALID_VALUE},
    checks=["vgs_mirror_flush_host()"],
    client_after="vgs_mirror_submitted()",
    aliases=["cuStreamBatchMemOp"],
    doc="Several such operations, in order.",
    group="memops",
)
ATTRIBUTE = [handle("hStream", STREAM, named=True), val("attr", I32)]
fn(
    "cuStreamSetAttribute",
    [*ATTRIBUTE, struct_in("value", "CUlaunchAttributeValue")],
    WAITING,
    doc="Change an attribute of a stream.",
)
fn(
    "cuStreamGetAttribute",
    [*ATTRIBUTE, struct_out("value_out", "CUlaunchAttributeValue")],
    WAITING,
    doc="An attribute of a stream.",
)
