"""Arrays, mipmapped arrays, textures and surfaces. The worker chooses an object's value, since kernels receive it
unchanged."""

from protocol.gen.dsl import (
    ADDRESS,
    ALLOCATION,
    ARRAY,
    DEVICE,
    INVALID_HANDLE,
    INVALID_VALUE,
    MIPMAP,
    QUEUED,
    SIZE,
    STREAM,
    U32,
    ULL,
    WAITING,
    array_in,
    bytes_in,
    bytes_out,
    fn,
    handle,
    handle_at,
    host_only,
    out,
    out_handle,
    ptr,
    sent,
    struct,
    struct_in,
    struct_out,
    val,
)
from protocol.spec.copy import EITHER, OUT_OF_REACH, SIDES, box

RESOURCE, TEXTURE, VIEW = "CUDA_RESOURCE_DESC", "CUDA_TEXTURE_DESC", "CUDA_RESOURCE_VIEW_DESC"
DESCRIPTOR = "CUDA_ARRAY3D_DESCRIPTOR"
STREAM_ARG = handle("hStream", STREAM)
MAPS_MAX = 64  # operations in one record; the client sends as many records as it takes

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
    refuses={"hArray_object->is_level": INVALID_HANDLE},  # destroyed with its mipmapped array
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

# Arrays whose memory is mapped later. The simulator makes none, so its arrays never get as far as the worker.
for what, c, kind in (("Array", "array", ARRAY), ("MipmappedArray", "mipmap", MIPMAP)):
    fn(
        f"cu{what}GetSparseProperties",
        [struct_out("sparseProperties", "CUDA_ARRAY_SPARSE_PROPERTIES"), handle(c, kind)],
        WAITING,
        refuses={f"!({c}_object->desc.Flags & CUDA_ARRAY3D_SPARSE)": INVALID_VALUE},
        simulator=False,
        doc="Tiles and tail of a sparse array.",
    )
    fn(
        f"cu{what}GetMemoryRequirements",
        [struct_out("memoryRequirements", "CUDA_ARRAY_MEMORY_REQUIREMENTS"), handle(c, kind), val("device", DEVICE)],
        WAITING,
        refuses={f"!({c}_object->desc.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING)": INVALID_VALUE},
        simulator=False,
        doc="Memory to map into an array that was made without.",
    )
MAP_INFOS = ptr("mapInfoList", "CUarrayMapInfo *")
fn(
    "cuMemMapArrayAsync",
    [MAP_INFOS, val("count", U32), ptr("hStream", "CUstream")],
    doc="Map memory into sparse arrays, or unmap it, in stream order.",
)
host_only(
    "cuMemMapArrayAsync",
    [MAP_INFOS, val("count", U32), ptr("hStream", "CUstream")],
    simulator=False,
    doc="For vgpuMapArrays and vgpuMapMipmaps.",
)
for name, path, kind in (("vgpuMapArrays", "array", ARRAY), ("vgpuMapMipmaps", "mipmap", MIPMAP)):
    members = (handle_at(f"resource.{path}", kind, optional=False), handle_at("memHandle", ALLOCATION))
    fn(
        name,
        [array_in("mapInfoList", "CUarrayMapInfo", "count", MAPS_MAX, members), val("count", U32), STREAM_ARG],
        WAITING,
        calls="cuMemMapArrayAsync",
        doc="cuMemMapArrayAsync of operations whose resources are of one kind.",
    )
fn(
    "cuArrayGetPlane",
    [ptr("pPlaneArray", "CUarray *"), handle("hArray", ARRAY), val("planeIdx", U32)],
    asked=INVALID_VALUE,
    doc="INVALID_VALUE, as no array has several planes: an H200's driver makes none of the format NV12.",
)

# Copies. Memory that the worker cannot access travels.
BOX = [val(name, SIZE) for name in ("x", "y", "z", "width", "height", "depth")]
PACKED = {"req->depth != 1 || !vgx_rows_fill(req->width, req->height, req->nbytes)": "rows do not fill the box"}


def rows(side: str) -> dict[str, str]:
    """Packed rows as a side of a copy."""
    return {
        f"{side}MemoryType": "CU_MEMORYTYPE_HOST",
        f"{side}Host": "rows",
        f"{side}Pitch": "req->width",
        f"{side}Height": "req->height",
    }


def place(side: str) -> dict[str, str]:
    """A place in an array."""
    return {
        f"{side}MemoryType": "CU_MEMORYTYPE_ARRAY",
        f"{side}Array": "array",
        f"{side}XInBytes": "req->x",
        f"{side}Y": "req->y",
        f"{side}Z": "req->z",
    }


fn(
    "vgpuArrayWrite",
    [
        val("nbytes", SIZE),
        *BOX,
        handle("array", ARRAY),
        STREAM_ARG,
        bytes_in("rows", "nbytes", data=True),
    ],
    QUEUED,
    violations=PACKED,
    calls="cuMemcpy3DAsync_v2",
    given=[box(**(rows("src") | place("dst"))), "hStream"],
    doc="Rows, packed, to a box of an array; x and width are bytes.",
)
fn(
    "vgpuArrayRead",
    [val("nbytes", SIZE), *BOX, handle("array", ARRAY), STREAM_ARG, bytes_out("rows", "nbytes")],
    WAITING,
    violations=PACKED,
    calls="cuMemcpy3DAsync_v2",
    given=[box(**(rows("dst") | place("src"))), "hStream"],
    worker_after="result = s->backend->cuStreamSynchronize(hStream)",
    blocks=True,
    doc="A box of an array to packed rows; waits for the stream.",
)
fn(
    "vgpuArrayCopy",
    [
        *SIDES,
        STREAM_ARG,
    ],
    QUEUED,
    violations={"!dstArray && !srcArray": "a copy of arrays without one"},
    worker_answers={
        "!req->width || !req->height || !req->depth": "CUDA_SUCCESS",
        **OUT_OF_REACH,
    },
    calls="cuMemcpy3DAsync_v2",
    given=[EITHER, "hStream"],
    doc="Copy a box between arrays, or an array and memory that the worker reaches.",
)


def flat(stream: str, sync: str, **sides: str) -> str:
    """C that copies `ByteCount` bytes to or from an array of one dimension."""
    copy = struct("CUDA_MEMCPY3D", **sides, WidthInBytes="ByteCount", Height="1", Depth="1")
    return f"vgs_array_copy({copy}, {stream}, {sync})"


def in_array(side: str) -> dict[str, str]:
    offset, array = f"{side}Offset", f"{side}Array"
    return {f"{side}MemoryType": "CU_MEMORYTYPE_ARRAY", array: array, f"{side}XInBytes": offset}


TO_ARRAY = [ptr("dstArray", "CUarray"), val("dstOffset", SIZE)]
FROM_ARRAY = [ptr("srcArray", "CUarray"), val("srcOffset", SIZE)]
NBYTES = val("ByteCount", SIZE)
for name, args, sides in (
    (
        "cuMemcpyHtoA",
        [*TO_ARRAY, ptr("srcHost", "const void *"), NBYTES, STREAM_ARG],
        in_array("dst") | {"srcMemoryType": "CU_MEMORYTYPE_HOST", "srcHost": "srcHost"},
    ),
    (
        "cuMemcpyAtoH",
        [ptr("dstHost", "void *"), *FROM_ARRAY, NBYTES, STREAM_ARG],
        in_array("src") | {"dstMemoryType": "CU_MEMORYTYPE_HOST", "dstHost": "dstHost"},
    ),
):
    fn(
        f"{name}Async_v2",
        args,
        asked=flat("hStream", "sync", **sides),
        forms=[f"{name}_v2"],
        doc="Copy between the program's memory and an array of one dimension.",
    )
for name, args, sides in (
    (
        "cuMemcpyDtoA_v2",
        [*TO_ARRAY, val("srcDevice", ADDRESS), NBYTES],
        in_array("dst") | {"srcMemoryType": "CU_MEMORYTYPE_DEVICE", "srcDevice": "srcDevice"},
    ),
    (
        "cuMemcpyAtoD_v2",
        [val("dstDevice", ADDRESS), *FROM_ARRAY, NBYTES],
        in_array("src") | {"dstMemoryType": "CU_MEMORYTYPE_DEVICE", "dstDevice": "dstDevice"},
    ),
    ("cuMemcpyAtoA_v2", [*TO_ARRAY, *FROM_ARRAY, NBYTES], in_array("dst") | in_array("src")),
):
    fn(
        name,
        args,
        asked=flat("vgs_stream_default()", "true", **sides),
        doc="Copy between an array of one dimension and another, or device memory.",
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
        out("pTexObject", ULL),
        struct_in("pResDesc", RESOURCE),
        struct_in("pTexDesc", TEXTURE),
        ptr("pResViewDesc", f"const {VIEW} *"),
    ],
    WAITING,
    wire=[
        out("pTexObject", ULL),
        struct_in("pResDesc", RESOURCE),
        struct_in("pTexDesc", TEXTURE),
        sent(struct_in("view", VIEW), f"pResViewDesc ? pResViewDesc : {struct(VIEW)}"),
        sent(val("array", U32), "array_id"),
        sent(val("viewed", U32), "pResViewDesc != NULL"),
    ],
    client_before="uint32_t array_id",
    checks=["vgs_resource_id(pResDesc, &array_id)"],
    client_after="vgs_texture_add(pTexObject_told, pResDesc, pTexDesc, pResViewDesc)",
    worker_before=f"{RESOURCE} resource = req->pResDesc",
    worker_checks=["vgx_resource_of(s, &resource, req->array)"],
    given=["pTexObject", "&resource", "pTexDesc", "req->viewed ? &req->view : NULL"],
    worker_after="result = vgx_sampled_add(s, pTexObject, false)",
    doc="A texture over an array, a mipmapped array or memory.",
)
fn(
    "cuTexObjectDestroy",
    [val("texObject", ULL)],
    WAITING,
    answers={"!texObject": "CUDA_SUCCESS", "!vgs_sampled_remove(texObject, false)": INVALID_VALUE},
    worker_answers={"!vgx_sampled_remove(s, req->texObject, false)": INVALID_VALUE},
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
    [out("pSurfObject", ULL), struct_in("pResDesc", RESOURCE)],
    WAITING,
    wire=[out("pSurfObject", ULL), sent(handle("array", ARRAY), "array_id")],
    client_before="uint32_t array_id",
    checks=["vgs_surface_id(pResDesc, &array_id)"],
    client_after="vgs_surface_add(pSurfObject_told, pResDesc)",
    given=["pSurfObject", struct(RESOURCE, **{"res.array.hArray": "array"})],
    worker_after="result = vgx_sampled_add(s, pSurfObject, true)",
    doc="A surface over an array.",
)
fn(
    "cuSurfObjectDestroy",
    [val("surfObject", ULL)],
    WAITING,
    answers={"!surfObject": "CUDA_SUCCESS", "!vgs_sampled_remove(surfObject, true)": INVALID_VALUE},
    worker_answers={"!vgx_sampled_remove(s, req->surfObject, true)": INVALID_VALUE},
    blocks=True,
    doc="End a surface.",
)
fn(
    "cuSurfObjectGetResourceDesc",
    [ptr("pResDesc", f"{RESOURCE} *"), val("surfObject", ULL)],
    doc="What a surface was made over; kept in the client.",
)
