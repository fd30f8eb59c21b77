"""Images: uploaded in pieces, then loaded as module or library. Kernels are described once and cached in the client."""

from typing import Any

from protocol.gen.dsl import (
    ADDRESS,
    DEVICE,
    DEVICEPTR,
    FUNCTION,
    I32,
    INIT,
    INVALID_HANDLE,
    INVALID_VALUE,
    KERNEL,
    LIBRARY,
    MODULE,
    QUEUED,
    SIZE,
    U32,
    U64,
    WAITING,
    bytes_in,
    bytes_out,
    fn,
    function,
    handle,
    kept,
    out,
    out_handle,
    ptr,
    sent,
    text_in,
    val,
)

IMAGE = val("image", U32)


def loads(member: str, name: str, kind: str) -> dict[str, Any]:
    """The worker's half of a function that loads an image. The image is complete and has no other user meanwhile; it
    counts against the quota until the loaded object ends."""
    return {
        "calls": member,
        "worker_before": "struct vgx_image image",
        "worker_checks": ["vgx_image_load_begin(s, req->image, &image)"],
        "given": [name, "image.data", "image.total"],
        "worker_done": "vgx_image_load_end(s, &image)",
        "worker_after": f"vgx_image_charge(s, &image, VGW_KIND_{kind}, req->{name})",
    }


UNWANTED = {"!dptr && !bytes": INVALID_VALUE}
VARIABLE = [out("dptr", DEVICEPTR, optional=True), out("bytes", SIZE, optional=True)]


def settable(kernel: str, device: str) -> dict[str, Any]:
    """The client's half of setting an attribute: the value is kept, and setting it to the same value again, as cuBLASLt
    does at every launch, sends nothing.
    """
    return {
        "checks": [f"vgs_kernel_check_settable({kernel}_object, attrib)"],
        "answers": {f"vgs_kernel_has({kernel}_object, {device}, attrib, value)": "CUDA_SUCCESS"},
        "client_after": f"vgs_kernel_set({kernel}_object, {device}, attrib, value)",
    }


fn(
    "vgpuImageWrite",
    [IMAGE, val("total", U64), val("offset", U64), val("nbytes", U64), bytes_in("data", "nbytes", data=True)],
    QUEUED,
    need=INIT,
    doc="A piece of an image the client uploads under an id of its choice; pieces come in order.",
)
fn(
    "vgpuImageOffer",
    [IMAGE, val("total", U64), *(val(f"digest{i}", U64) for i in range(4)), out("known", I32)],
    WAITING,
    need=INIT,
    blocks=True,
    doc="Name an image by its digest (vgs_digest.h, as four little-endian words): known 1, and it is as if it had been "
    "uploaded; known 0, and its pieces follow under the same id.",
)
fn("vgpuImageDrop", [IMAGE], QUEUED, need=INIT, doc="Forget an uploaded image.")

fn(
    "cuModuleLoadData",
    [out_handle("module", MODULE), ptr("image", "const void *")],
    WAITING,
    wire=[out_handle("module", MODULE), sent(IMAGE, "image_id")],
    backend=False,
    client_before="VGS_IMAGE_ID image_id = 0",
    checks=["vgs_image_upload(image, &image_id)"],
    blocks=True,
    doc="Load an image into the current context.",
    **loads("load_module", "module", "MODULE"),
)
fn(
    "cuModuleLoadDataEx",
    [
        ptr("module", "CUmodule *"),
        ptr("image", "const void *"),
        val("numOptions", U32),
        ptr("options", "int *"),
        ptr("optionValues", "void **"),
    ],
    doc="With JIT options: log buffers are filled, the rest are hints.",
)
fn("cuModuleLoadFatBinary", [ptr("module", "CUmodule *"), ptr("fatCubin", "const void *")], doc="As cuModuleLoadData.")
fn("cuModuleLoad", [ptr("module", "CUmodule *"), ptr("fname", "const char *")], doc="Load a file of the client's.")
fn(
    "cuModuleUnload",
    [handle("hmod", MODULE, ends=True)],
    WAITING,
    refuses={"hmod_object->library_id /* it goes with its library */": INVALID_HANDLE},
    blocks=True,
    doc="Unload a module.",
)
fn("cuModuleGetLoadingMode", [out("mode", I32)], need=INIT, doc="Eager or lazy, by the client's CUDA_MODULE_LOADING.")
fn(
    "cuModuleGetFunction",
    [
        out_handle(
            "hfunc",
            FUNCTION,
            parent="hmod",
            make="vgs_kernel_make(VGW_KIND_FUNCTION, hmod_id, hmod_object->object.context_id, name)",
        ),
        handle("hmod", MODULE),
        text_in("name"),
    ],
    WAITING,
    refuses={"!*name": INVALID_VALUE},
    doc="A kernel of a module.",
)
fn(
    "cuModuleGetGlobal_v2",
    [*VARIABLE, handle("hmod", MODULE), text_in("name")],
    WAITING,
    refuses=UNWANTED,
    client_after="vgs_range_add_variable(dptr_told, bytes_told)",
    doc="Address and size of a module's variable.",
)
fn(
    "cuModuleGetFunctionCount",
    [out("count", U32), handle("mod", MODULE)],
    WAITING,
    doc="How many kernels a module has.",
)

fn(
    "cuLibraryLoadData",
    [
        ptr("library", "CUlibrary *"),
        ptr("code", "const void *"),
        ptr("jitOptions", "int *"),
        ptr("jitOptionsValues", "void **"),
        val("numJitOptions", U32),
        ptr("libraryOptions", "int *"),
        ptr("libraryOptionValues", "void **"),
        val("numLibraryOptions", U32),
    ],
    WAITING,
    need=INIT,
    guest="custom",
    wire=[out_handle("library", LIBRARY), IMAGE],
    backend=False,
    blocks=True,
    doc="Load an image for all contexts, lazily.",
    **loads("load_library", "library", "LIBRARY"),
)
fn(
    "cuLibraryLoadFromFile",
    [
        ptr("library", "CUlibrary *"),
        ptr("fileName", "const char *"),
        ptr("jitOptions", "int *"),
        ptr("jitOptionsValues", "void **"),
        val("numJitOptions", U32),
        ptr("libraryOptions", "int *"),
        ptr("libraryOptionValues", "void **"),
        val("numLibraryOptions", U32),
    ],
    need=INIT,
    doc="Load a file of the client's for all contexts.",
)
fn(
    "cuLibraryUnload",
    [handle("library", LIBRARY, ends=True, ending="vgs_mirror_remove(library_id)")],
    WAITING,
    need=INIT,
    answers={"!vgs_library_end(library_object)": "CUDA_SUCCESS"},  # the worker never loaded the library
    blocks=True,
    doc="Unload a library.",
)
fn(
    "cuLibraryGetKernel",
    [
        out_handle("pKernel", KERNEL, parent="library"),
        handle("library", LIBRARY),
        text_in("name"),
    ],
    WAITING,
    need=INIT,
    guest="custom",
    doc="A kernel of a library.",
)
fn(
    "cuLibraryGetModule",
    [
        out_handle(
            "pMod",
            MODULE,
            parent="library",
            make="vgs_object_create(VGW_KIND_MODULE, vgs_context_entered->wire_id)",
            library_id="library_id",
        ),
        handle("library", LIBRARY),
    ],
    WAITING,
    doc="The library's module in the current context.",
)
fn(
    "cuLibraryGetGlobal",
    [*VARIABLE, handle("library", LIBRARY), text_in("name")],
    WAITING,
    refuses=UNWANTED,
    client_after="vgs_range_add_variable(dptr_told, bytes_told)",
    doc="A library's variable in the current context.",
)
fn(
    "cuLibraryGetUnifiedFunction",
    [ptr("fptr", "void **"), handle("library", LIBRARY), text_in("symbol")],
    WAITING,
    need=INIT,
    wire=[out("address", ADDRESS), handle("library", LIBRARY), text_in("symbol")],
    refuses={"!fptr": INVALID_VALUE},
    client_after="*fptr = (void *)(uintptr_t)address_told",
    given=["(void **)&address", "library", "symbol"],
    doc="A function of a library by a pointer that is the same on all devices.",
)
fn(
    "cuLibraryGetManaged",
    [out("dptr", DEVICEPTR), out("bytes", SIZE), ptr("library", "CUlibrary"), ptr("name", "const char *")],
    need=INIT,
    doc="A library's managed variable, in memory that host and device use at one address.",
)
fn(
    "vgpuLibraryManaged",
    [out("placed", ADDRESS), out("nbytes", SIZE), val("address", ADDRESS), handle("library", LIBRARY), text_in("name")],
    WAITING,
    doc="Where a managed variable lies, 0 if nowhere yet; with an address in pinned memory: it lies there from now on.",
)
fn(
    "cuLibraryGetKernelCount",
    [out("count", U32), handle("lib", LIBRARY)],
    WAITING,
    need=INIT,
    doc="How many kernels a library has.",
)
fn(
    "vgpuKernelName",
    [
        val("kind", U32),
        val("object", U32),
        val("index", U32),
        val("capacity", SIZE),
        bytes_out("name", "capacity", cap=65536),
    ],
    WAITING,
    need=INIT,
    doc="Name of the index-th kernel of a module (kind 4) or library (kind 5), for the enumerating calls.",
)
fn(
    "cuLibraryEnumerateKernels",
    [ptr("kernels", "CUkernel *"), val("numKernels", U32), handle("lib", LIBRARY)],
    need=INIT,
    doc="The kernels of a library.",
)
fn(
    "cuModuleEnumerateFunctions",
    [ptr("functions", "CUfunction *"), val("numFunctions", U32), handle("mod", MODULE)],
    doc="The kernels of a module.",
)

fn(
    "vgpuKernelDescribe",
    [function("f", loaded=True), val("capacity", SIZE), bytes_out("description", "capacity", cap=1 << 18)],
    WAITING,
    need=INIT,
    doc="Attributes and parameters of a function or kernel: vgw_kernel_description, vgw_params.",
)
fn(
    "cuFuncGetAttribute",
    [out("pi", I32), val("attrib", I32), ptr("hfunc", "CUfunction")],
    doc="From the kernel's description.",
)
fn(
    "cuFuncSetAttribute",
    [function("hfunc", loaded=True), val("attrib", I32), val("value", I32)],
    WAITING,
    **settable("hfunc", "vgs_context_entered->device"),
    doc="Change an attribute.",
)
fn("cuFuncGetName", [ptr("name", "const char **"), ptr("hfunc", "CUfunction")], doc="Name of a kernel.")
fn("cuFuncGetModule", [ptr("hmod", "CUmodule *"), ptr("hfunc", "CUfunction")], doc="Module of a kernel.")
fn(
    "cuFuncGetParamInfo",
    [ptr("func", "CUfunction"), val("paramIndex", SIZE), out("paramOffset", SIZE), out("paramSize", SIZE)],
    doc="Layout of a parameter.",
)
fn("cuFuncSetCacheConfig", [ptr("hfunc", "CUfunction"), val("config", I32)], doc="A hint that changes nothing.")
fn("cuFuncSetSharedMemConfig", [ptr("hfunc", "CUfunction"), val("config", I32)], doc="A hint that changes nothing.")
fn(
    "cuFuncIsLoaded",
    [out("state", I32), ptr("function", "CUfunction")],
    doc="Whether a lazily loaded kernel was loaded.",
)
fn("cuFuncLoad", [ptr("function", "CUfunction")], doc="Load a kernel now.")
fn(
    "cuKernelGetFunction",
    [kept("pFunc", "CUfunction", "(CUfunction)kernel"), handle("kernel", KERNEL)],
    doc="The kernel in the current context.",
)
fn(
    "cuKernelGetAttribute",
    [out("pi", I32), val("attrib", I32), handle("kernel", KERNEL), val("dev", DEVICE)],
    need=INIT,
    doc="From the kernel's description.",
)
fn(
    "cuKernelSetAttribute",
    [val("attrib", I32), val("value", I32), handle("kernel", KERNEL), val("dev", DEVICE)],
    WAITING,
    need=INIT,
    **settable("kernel", "dev"),
    doc="Change an attribute of a kernel, in all contexts of a device.",
)
fn(
    "cuKernelSetCacheConfig",
    [handle("kernel", KERNEL), val("config", I32), val("dev", DEVICE)],
    need=INIT,
    doc="A hint that changes nothing.",
)
fn("cuKernelGetName", [ptr("name", "const char **"), handle("kernel", KERNEL)], need=INIT, doc="Name of a kernel.")
fn("cuKernelGetLibrary", [ptr("pLib", "CUlibrary *"), handle("kernel", KERNEL)], need=INIT, doc="Library of a kernel.")
fn(
    "cuKernelGetParamInfo",
    [handle("kernel", KERNEL), val("paramIndex", SIZE), out("paramOffset", SIZE), out("paramSize", SIZE)],
    need=INIT,
    doc="Layout of a parameter.",
)

# cuLink: inputs are kept in the client; the worker checks each when it is added, and links all at cuLinkComplete.
LINK_OPTIONS = [val("numOptions", U32), ptr("options", "int *"), ptr("optionValues", "void **")]
fn("cuLinkCreate_v2", [*LINK_OPTIONS, ptr("stateOut", "CUlinkState *")], aliases=["cuLinkCreate"], doc="Begin a link.")
fn(
    "cuLinkAddData_v2",
    [
        ptr("state", "CUlinkState"),
        val("type", I32),
        ptr("data", "void *"),
        val("size", SIZE),
        ptr("name", "const char *"),
        *LINK_OPTIONS,
    ],
    aliases=["cuLinkAddData"],
    doc="Add an input, checked at once.",
)
fn(
    "cuLinkAddFile_v2",
    [ptr("state", "CUlinkState"), val("type", I32), ptr("path", "const char *"), *LINK_OPTIONS],
    aliases=["cuLinkAddFile"],
    doc="Add a file of the client's.",
)
fn(
    "cuLinkComplete",
    [ptr("state", "CUlinkState"), ptr("cubinOut", "void **"), ptr("sizeOut", "size_t *")],
    doc="Link, and hand out the image.",
)
fn("cuLinkDestroy", [ptr("state", "CUlinkState")], doc="End a link and free its image.")
fn(
    "vgpuLink",
    [val("first", U32), val("count", U32), val("result", U32), out("nbytes", U64)],
    WAITING,
    blocks=True,
    doc="Link uploaded images first..first+count-1 into image `result`; 0: only check that they can be linked.",
)
fn(
    "vgpuImageRead",
    [IMAGE, val("offset", U64), val("nbytes", U64), bytes_out("data", "nbytes")],
    WAITING,
    need=INIT,
    doc="A piece of an image, for the link's output.",
)
