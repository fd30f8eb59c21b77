"""Textures and surfaces by reference: variables of a module, whose bindings the driver keeps. Deprecated, and not in
PTX for newer devices, so the simulator does not implement them.
"""

from protocol.gen.dsl import (
    ARRAY,
    DEVICEPTR,
    F32,
    I32,
    INVALID_VALUE,
    MIPMAP,
    MODULE,
    SIZE,
    SURFREF,
    TEXREF,
    U32,
    WAITING,
    fn,
    found,
    handle,
    out,
    out_handle,
    ptr,
    sent,
    struct_in,
    struct_out,
    text_in,
    val,
)

REFERENCE = handle("hTexRef", TEXREF)
FLAGS = val("Flags", U32)
COLOR = "CUtexrefBorderColor"
OUT_OF_REACH = {"req->dptr && !vgx_is_reachable(s, req->dptr, req->bytes)": INVALID_VALUE}
ROWS = "req->dptr, req->Pitch, req->desc.Height, req->Pitch, req->desc.Height, 1"

for what, kind, name in (("Tex", TEXREF, "pTexRef"), ("Surf", SURFREF, "pSurfRef")):
    fn(
        f"cuModuleGet{what}Ref",
        [out_handle(name, kind, parent="hmod"), handle("hmod", MODULE), text_in("name")],
        WAITING,
        simulator=False,
        doc="A variable of a module by its name.",
    )
fn("cuTexRefCreate", [out_handle("pTexRef", TEXREF)], WAITING, simulator=False, doc="A reference of no module's.")
fn(
    "cuTexRefDestroy",
    [handle("hTexRef", TEXREF, ends=True)],
    WAITING,
    simulator=False,
    doc="End a reference of cuTexRefCreate.",
)
fn(
    "cuParamSetTexRef",
    [ptr("hfunc", "CUfunction"), val("texunit", I32), REFERENCE],
    asked="vgs_param_set_texref(hfunc, texunit, hTexRef_id)",
    doc="A texture of a kernel's: all of its module's are already, so this only checks.",
)

# The memory or array that a reference is bound to.
fn(
    "cuTexRefSetArray",
    [REFERENCE, handle("hArray", ARRAY), FLAGS],
    WAITING,
    simulator=False,
    doc="Bind an array.",
)
fn(
    "cuTexRefSetMipmappedArray",
    [REFERENCE, handle("hMipmappedArray", MIPMAP), FLAGS],
    WAITING,
    simulator=False,
    doc="Bind a mipmapped array.",
)
fn(
    "cuTexRefSetAddress_v2",
    [out("ByteOffset", SIZE, optional=True), REFERENCE, val("dptr", DEVICEPTR), val("bytes", SIZE)],
    WAITING,
    worker_answers=OUT_OF_REACH,
    simulator=False,
    doc="Bind memory of one dimension.",
)
fn(
    "cuTexRefSetAddress2D_v3",
    [REFERENCE, struct_in("desc", "CUDA_ARRAY_DESCRIPTOR"), val("dptr", DEVICEPTR), val("Pitch", SIZE)],
    WAITING,
    worker_answers={f"req->dptr && !vgx_box_is_reachable(s, {ROWS})": INVALID_VALUE},
    aliases=["cuTexRefSetAddress2D_v2"],
    simulator=False,
    doc="Bind rows of memory.",
)
fn(
    "cuTexRefGetAddress_v2",
    [out("pdptr", DEVICEPTR), REFERENCE],
    WAITING,
    simulator=False,
    doc="The memory that is bound.",
)
for what, kind in (("Array", ARRAY), ("MipmappedArray", MIPMAP)):
    fn(
        f"cuTexRefGet{what}",
        [found(f"ph{what}", kind), REFERENCE],
        WAITING,
        simulator=False,
        doc="The array that is bound.",
    )
SURFACE = handle("hSurfRef", SURFREF)
fn("cuSurfRefSetArray", [SURFACE, handle("hArray", ARRAY), FLAGS], WAITING, simulator=False, doc="Bind an array.")
fn("cuSurfRefGetArray", [found("phArray", ARRAY), SURFACE], WAITING, simulator=False, doc="The array that is bound.")

# How a texture is read: format, addressing, filtering.
fn(
    "cuTexRefSetFormat",
    [REFERENCE, val("fmt", I32), val("NumPackedComponents", I32)],
    WAITING,
    simulator=False,
    doc="Format of the elements.",
)
fn(
    "cuTexRefGetFormat",
    [out("pFormat", I32), out("pNumChannels", I32), REFERENCE],
    WAITING,
    simulator=False,
    doc="Format of the elements.",
)
fn(
    "cuTexRefSetAddressMode",
    [REFERENCE, val("dim", I32), val("am", I32)],
    WAITING,
    simulator=False,
    doc="What lies beyond the edge of a dimension.",
)
fn(
    "cuTexRefGetAddressMode",
    [out("pam", I32), REFERENCE, val("dim", I32)],
    WAITING,
    simulator=False,
    doc="What lies beyond the edge of a dimension.",
)
for name, scalar, doc in (
    ("FilterMode", I32, "Filter between elements."),
    ("MipmapFilterMode", I32, "Filter between levels."),
    ("MipmapLevelBias", F32, "What is added to a level."),
    ("MaxAnisotropy", U32, "Largest ratio of anisotropy."),
    ("Flags", U32, "Whether coordinates are normalised, and values integers."),
):
    fn(f"cuTexRefSet{name}", [REFERENCE, val("value", scalar)], WAITING, simulator=False, doc=doc)
    result = I32 if name == "MaxAnisotropy" else scalar
    fn(f"cuTexRefGet{name}", [out("value", result), REFERENCE], WAITING, simulator=False, doc=doc)
fn(
    "cuTexRefSetMipmapLevelClamp",
    [REFERENCE, val("minMipmapLevelClamp", F32), val("maxMipmapLevelClamp", F32)],
    WAITING,
    simulator=False,
    doc="Least and greatest level.",
)
fn(
    "cuTexRefGetMipmapLevelClamp",
    [out("pminMipmapLevelClamp", F32), out("pmaxMipmapLevelClamp", F32), REFERENCE],
    WAITING,
    simulator=False,
    doc="Least and greatest level.",
)
fn(
    "cuTexRefSetBorderColor",
    [REFERENCE, ptr("pBorderColor", "float *")],
    WAITING,
    wire=[REFERENCE, sent(struct_in("color", COLOR), f"(const {COLOR} *)pBorderColor")],
    refuses={"!pBorderColor": INVALID_VALUE},
    given=["hTexRef", "(float *)req->color.value"],
    simulator=False,
    doc="What the border is.",
)
fn(
    "cuTexRefGetBorderColor",
    [ptr("pBorderColor", "float *"), REFERENCE],
    WAITING,
    wire=[sent(struct_out("color", COLOR), f"({COLOR} *)pBorderColor"), REFERENCE],
    refuses={"!pBorderColor": INVALID_VALUE},
    given=["color.value", "hTexRef"],
    simulator=False,
    doc="What the border is.",
)
