"""Green contexts: a device's multiprocessors divided between contexts.

A resource also has data that only the driver understands, so the worker accepts only resources that it has returned
before."""

from protocol.gen.dsl import (
    CONTEXT,
    DEVICE,
    EVENT,
    GREEN,
    I32,
    INIT,
    INVALID_VALUE,
    RESOURCE_DESC,
    STREAM,
    U32,
    ULL,
    WAITING,
    array_in,
    array_out,
    count,
    fn,
    handle,
    host_only,
    out,
    out_handle,
    ptr,
    sent,
    struct_in,
    struct_out,
    val,
)

RESOURCE, GROUPS_MAX = "CUdevResource", 256
OF_GREEN = handle("hCtx", GREEN)
UNKNOWN = {"!vgx_resources_are_known(s, &req->input, 1)": INVALID_VALUE}

fn(
    "vgpuDeviceResource",
    [struct_out("resource", RESOURCE), val("device", DEVICE), val("type", I32)],
    WAITING,
    need=INIT,
    calls="cuDeviceGetDevResource",
    given=["device", "resource", "type"],
    worker_after="result = vgx_resources_add(s, &resource, 1)",
    doc="All of a device's multiprocessors, as the driver has them.",
)
host_only(
    "cuDeviceGetDevResource",
    [val("device", DEVICE), ptr("resource", f"{RESOURCE} *"), val("type", I32)],
    doc="For vgpuDeviceResource; the client knows the numbers without asking.",
)
fn(
    "cuDevSmResourceSplitByCount",
    [
        array_out("groups", RESOURCE, "nbGroups", GROUPS_MAX),
        count("nbGroups", U32),
        ptr("input", f"const {RESOURCE} *"),
        ptr("remaining", f"{RESOURCE} *"),
        val("useFlags", U32),
        val("minCount", U32),
    ],
    WAITING,
    need=INIT,
    wire=[
        array_out("groups", RESOURCE, "nbGroups", GROUPS_MAX),
        count("nbGroups", U32),
        sent(struct_in("input", RESOURCE), "&whole"),
        sent(struct_out("remaining", RESOURCE), "&left"),
        val("useFlags", U32),
        val("minCount", U32),
    ],
    client_before=f"{RESOURCE} whole, left",
    checks=["vgs_resource_resolve(input, &whole)"],
    client_after="if (remaining) *remaining = left",
    worker_answers=UNKNOWN,
    given=["groups", "nbGroups", "input", "remaining", "useFlags", "minCount"],
    worker_after="result = vgx_resources_add_split(s, groups, nbGroups < req->nbGroups ? nbGroups : req->nbGroups, "
    "&remaining)",
    doc="Divide multiprocessors into groups, and what is left.",
)
fn(
    "cuDevResourceGenerateDesc",
    [
        out_handle("phDesc", RESOURCE_DESC),
        ptr("resources", f"{RESOURCE} *"),
        val("nbResources", U32, most=GROUPS_MAX, nonzero=True),
    ],
    WAITING,
    need=INIT,
    wire=[
        out_handle("phDesc", RESOURCE_DESC),
        val("nbResources", U32),
        sent(array_in("resources", RESOURCE, "nbResources", GROUPS_MAX), "real"),
    ],
    client_before=f"VGS_FREED {RESOURCE} *real = NULL",
    checks=["vgs_resources_resolve(resources, nbResources, &real)"],
    worker="vgx_resources_are_known(s, resources, req->nbResources) ? "
    f"s->backend->cuDevResourceGenerateDesc(&phDesc, resources, req->nbResources) : {INVALID_VALUE}",
    doc="What a green context is to be made of.",
)
fn(
    "cuGreenCtxCreate",
    [out_handle("phCtx", GREEN, device="dev"), handle("desc", RESOURCE_DESC), val("dev", DEVICE), val("flags", U32)],
    WAITING,
    need=INIT,
    doc="A context that has some of a device's multiprocessors.",
)
fn(
    "cuGreenCtxDestroy",
    [handle("hCtx", GREEN, ends=True, ending="vgs_green_destroy_context(hCtx_object)")],
    WAITING,
    need=INIT,
    blocks=True,
    doc="Destroy a green context and its streams.",
)
fn(
    "cuCtxFromGreenCtx",
    [
        out_handle(
            "pContext",
            CONTEXT,
            parent="hCtx",
            make="vgs_context_create_green(hCtx_object)",
            made="vgs_context_start_green(hCtx_object, pContext_object)",
        ),
        OF_GREEN,
    ],
    WAITING,
    need=INIT,
    answers={"hCtx_object->context": "(*pContext = hCtx_object->context, CUDA_SUCCESS)"},  # the same at each call
    doc="A green context as one that can be current.",
)
fn(
    "cuGreenCtxGetDevResource",
    [OF_GREEN, struct_out("resource", RESOURCE), val("type", I32)],
    WAITING,
    need=INIT,
    worker_after="result = vgx_resources_add(s, &resource, 1)",
    doc="The multiprocessors that a green context has.",
)
for verb, doc in (("Record", "Mark the point that its streams have reached."), ("Wait", "Have its streams wait.")):
    fn(
        f"cuGreenCtx{verb}Event",
        [OF_GREEN, handle("hEvent", EVENT)],
        WAITING,
        need=INIT,
        ordered_by_all=True,
        client_before="vgs_event_record_begin(hEvent_object, NULL, 0)" if verb == "Record" else "",
        doc=doc,
    )
fn(
    "cuGreenCtxStreamCreate",
    [
        out_handle("phStream", STREAM, make="vgs_stream_create(flags, priority)", green="greenCtx"),
        handle("greenCtx", GREEN),
        val("flags", U32, mask=1),
        val("priority", I32, sent="vgs_stream_priority(priority)"),
    ],
    WAITING,
    doc="A stream of a green context.",
)
fn(
    "cuGreenCtxGetId",
    [handle("greenCtx", GREEN), out("greenCtxId", ULL)],
    WAITING,
    need=INIT,
    doc="Number of a green context.",
)
