"""Arrays, mipmapped arrays, textures and surfaces. An object's value is the worker's, since kernels get it as it is."""

from protocol.gen.dsl import (
    ADDRESS,
    ARRAY,
    INVALID_HANDLE,
    INVALID_VALUE,
    MIPMAP,
    QUEUED,
    SIZE,
    STREAM,
    U32,
    ULL,
    WAITING,
    bytes_in,
    bytes_out,
    fn,
    handle,
    host_only,
    out,
    out_handle,
    ptr,
    struct_in,
    val,
)

RESOURCE, TEXTURE, VIEW = "CUDA_RESOURCE_DESC", "CUDA_TEXTURE_DESC", "CUDA_RESOURCE_VIEW_DESC"
DESCRIPTOR = "CUDA_ARRAY3D_DESCRIPTOR"

fn(
    "cuArray3DCreate_v2",
    [out_handle("pHandle", ARRAY, desc="*pAllocateArray"), struct_in("pAllocateArray", DESCRIPTOR)],
    WAITING,
    refuses={"!vgs_array_is_valid(pAllocateArray)": INVALID_VALUE},
    doc="An array of one to three dimensions, layers or a cube's faces.",
)
fn(
    "cuArrayCreate_v2",
    [ptr("pHandle", "CUarray *"), ptr("pAllocateArray", "const CUDA_ARRAY_DESCRIPTOR *")],
    doc="An array of one or two dimensions.",
)
fn(
    "cuArrayDestroy",
    [handle("hArray", ARRAY, ends=True)],
    WAITING,
    blocks=True,
    refuses={"hArray_object->is_level": INVALID_HANDLE},  # it goes with the others
    doc="Free an array.",
)
fn(
    "cuArray3DGetDescriptor_v2",
    [ptr("pArrayDescriptor", f"{DESCRIPTOR} *"), ptr("hArray", "CUarray")],
    doc="What an array was made as; kept in the client.",
)
fn(
    "cuArrayGetDescriptor_v2",
    [ptr("pArrayDescriptor", "CUDA_ARRAY_DESCRIPTOR *"), ptr("hArray", "CUarray")],
    doc="The same, of two dimensions.",
)
fn(
    "cuMipmappedArrayCreate",
    [
        out_handle("pHandle", MIPMAP, desc="*pMipmappedArrayDesc", level_count="numMipmapLevels"),
        struct_in("pMipmappedArrayDesc", DESCRIPTOR),
        val("numMipmapLevels", U32, nonzero=True),
    ],
    WAITING,
    refuses={"!vgs_array_is_valid(pMipmappedArrayDesc)": INVALID_VALUE},
    doc="An array with smaller versions of itself.",
)
fn(
    "cuMipmappedArrayGetLevel",
    [
        out_handle(
            "pLevelArray",
            ARRAY,
            parent="hMipmappedArray",
            desc="vgs_array_level(&hMipmappedArray_object->desc, level)",
            is_level="true",
        ),
        handle("hMipmappedArray", MIPMAP),
        val("level", U32),
    ],
    WAITING,
    refuses={"level >= vgs_array_levels(hMipmappedArray_object)": INVALID_VALUE},
    doc="One level as an array, which lives as long as they all.",
)
fn(
    "cuMipmappedArrayDestroy",
    [handle("hMipmappedArray", MIPMAP, ends=True)],
    WAITING,
    blocks=True,
    doc="Free a mipmapped array.",
)

# Copies: each side a place in an array or rows in memory that the worker reaches; the program's own memory travels.
BOX = [val(name, SIZE) for name in ("x", "y", "z", "width", "height", "depth")]
fn(
    "vgpuArrayWrite",
    [
        val("nbytes", SIZE),
        *BOX,
        handle("array", ARRAY),
        handle("hStream", STREAM),
        bytes_in("rows", "nbytes", data=True),
    ],
    QUEUED,
    doc="Rows, packed, to a box of an array; x and width are bytes.",
)
fn(
    "vgpuArrayRead",
    [val("nbytes", SIZE), *BOX, handle("array", ARRAY), handle("hStream", STREAM), bytes_out("rows", "nbytes")],
    WAITING,
    blocks=True,
    doc="A box of an array to packed rows; waits for the stream.",
)
SIDES = [
    val(f"{side}{name}", SIZE)
    for side in ("dst", "src")
    for name in ("Address", "Pitch", "Rows", "X", "Y", "Z")
]  # fmt: skip
fn(
    "vgpuArrayCopy",
    [
        *SIDES,
        *(val(name, SIZE) for name in ("width", "height", "depth")),
        handle("dstArray", ARRAY, optional=True),
        handle("srcArray", ARRAY, optional=True),
        handle("hStream", STREAM),
    ],
    QUEUED,
    doc="Copy a box between arrays, or an array and memory that the worker reaches.",
)
for name, to, source in (
    ("cuMemcpyHtoA_v2", "dstArray", "srcHost"),
    ("cuMemcpyHtoAAsync_v2", "dstArray", "srcHost"),
    ("cuMemcpyDtoA_v2", "dstArray", "srcDevice"),
):
    from_ = ptr(source, "const void *") if source == "srcHost" else val(source, ADDRESS)
    stream = [ptr("hStream", "CUstream")] if "Async" in name else []
    fn(
        name,
        [ptr(to, "CUarray"), val("dstOffset", SIZE), from_, val("ByteCount", SIZE), *stream],
        doc="Copy to an array of one dimension.",
    )
for name, to in (("cuMemcpyAtoH_v2", "dstHost"), ("cuMemcpyAtoHAsync_v2", "dstHost"), ("cuMemcpyAtoD_v2", "dstDevice")):
    to_ = ptr(to, "void *") if to == "dstHost" else val(to, ADDRESS)
    stream = [ptr("hStream", "CUstream")] if "Async" in name else []
    fn(
        name,
        [to_, ptr("srcArray", "CUarray"), val("srcOffset", SIZE), val("ByteCount", SIZE), *stream],
        doc="Copy from an array of one dimension.",
    )
fn(
    "cuMemcpyAtoA_v2",
    [
        ptr("dstArray", "CUarray"),
        val("dstOffset", SIZE),
        ptr("srcArray", "CUarray"),
        val("srcOffset", SIZE),
        val("ByteCount", SIZE),
    ],
    doc="Copy between arrays of one dimension.",
)
host_only(
    "cuMemcpy3DAsync_v2",
    [ptr("pCopy", "const CUDA_MEMCPY3D *"), ptr("hStream", "CUstream")],
    doc="For the copies of arrays.",
)

# Textures and surfaces.
fn(
    "cuTexObjectCreate",
    [
        ptr("pTexObject", "CUtexObject *"),
        ptr("pResDesc", f"const {RESOURCE} *"),
        ptr("pTexDesc", f"const {TEXTURE} *"),
        ptr("pResViewDesc", f"const {VIEW} *"),
    ],
    WAITING,
    wire=[
        out("object", ULL),
        struct_in("resource", RESOURCE),
        struct_in("texture", TEXTURE),
        struct_in("view", VIEW),
        val("array", U32),
        val("viewed", U32),
    ],
    doc="A texture over an array, a mipmapped array or memory.",
)
fn(
    "cuTexObjectDestroy",
    [val("texObject", ULL)],
    WAITING,
    guest="custom",
    host="custom",
    blocks=True,
    doc="End a texture.",
)
for what, c in (("Resource", RESOURCE), ("Texture", TEXTURE), ("ResourceView", VIEW)):
    fn(
        f"cuTexObjectGet{what}Desc",
        [ptr("pDesc", f"{c} *"), val("texObject", ULL)],
        doc="What a texture was made as; kept in the client.",
    )
fn(
    "cuSurfObjectCreate",
    [ptr("pSurfObject", "CUsurfObject *"), ptr("pResDesc", f"const {RESOURCE} *")],
    WAITING,
    wire=[out("object", ULL), handle("array", ARRAY)],
    doc="A surface over an array.",
)
fn(
    "cuSurfObjectDestroy",
    [val("surfObject", ULL)],
    WAITING,
    guest="custom",
    host="custom",
    blocks=True,
    doc="End a surface.",
)
fn(
    "cuSurfObjectGetResourceDesc",
    [ptr("pResDesc", f"{RESOURCE} *"), val("surfObject", ULL)],
    doc="What a surface was made over; kept in the client.",
)
