"""vgx_dispatch.c as a whole: the decoders, and the table of what each opcode takes."""

from __future__ import annotations

from protocol.gen.emit_host import dispatch, refs
from protocol.gen.emit_records import BANNER, includes, request_fields
from protocol.gen.load import Api
from protocol.gen.model import Channel, Function, Need, Param, Role, Turn

WORKER_HEADERS = (
    "vgx_custom.h",
    "vgx_device.h",
    "vgx_graph_condition.h",
    "vgx_graph_owner.h",
    "vgx_graph_part.h",
    "vgx_graph_query.h",
    "vgx_image.h",
    "vgx_ipc.h",
    "vgx_launch.h",
    "vgx_memory.h",
    "vgx_policy.h",
    "vgx_quota.h",
    "vgx_resource.h",
    "vgx_sampled.h",
    "vgx_session.h",
)  # headers for the entries' C


def _entry_flags(f: Function) -> str:
    flags = {
        "VGX_NEEDS_CONTEXT": f.need is Need.CONTEXT,
        "VGX_BLOCKS": f.blocks,
        "VGX_ABOUT_CHANNEL": f.channel in (Channel.SOCKET, Channel.RING),
        "VGX_NOT_IN_RING": f.channel is Channel.SOCKET,
        "VGX_DATA": any(p.data for p in f.sent),
        "VGX_AWAITED": f.awaited,
        "VGX_SUBMITS": f.submits,
        "VGX_ALONE": f.is_alone,
        "VGX_OVERTAKES": f.turn is Turn.OVERTAKES,
    }
    return " | ".join(flag for flag, holds in flags.items() if holds) or "0"


def _entry_ref(f: Function, p: Param) -> str:
    if p.role is Role.FUNCTION:
        return f"VGX_FUNCTION_REF(struct vgw_req_{f.name}, kind, object)"
    assert p.kind
    null = "CUDA_SUCCESS" if p.optional else p.wrong or p.kind.wrong
    return f"VGX_REF(VGW_KIND_{p.kind.name}, struct vgw_req_{f.name}, {p.name}, {null})"


def emit_dispatch(api: Api) -> str:
    out = [
        BANNER,
        includes("<stdlib.h>", "<string.h>", "<unistd.h>", "vgw_records.h", "vgw_wire.h", *WORKER_HEADERS),
    ]
    out += [dispatch(f) + "\n" for f in api.travelling()]
    out.append("const uint8_t vgx_quota_of_kind[VGW_KIND_COUNT] = {\n")
    out += [f"    [VGW_KIND_{k.name}] = VGW_QUOTA_{k.quota.upper()},\n" for k in api.kinds if k.quota]
    out.append("};\n\n")
    out.append("const char *const vgx_group_names[VGW_GROUP_COUNT] = {\n")
    out += [f'    [VGW_GROUP_{name.upper()}] = "{name}",\n' for name in api.groups]
    out.append("};\n\nconst char *const vgx_group_words[VGW_GROUP_COUNT] = {\n")
    out += [f'    [VGW_GROUP_{name.upper()}] = "{words}",\n' for name, words in api.groups.items()]
    out.append("};\n\n")
    out.append("VGX_OPERATIONS struct vgx_operation vgx_operations[VGW_OP_COUNT] = {\n")
    for f in api.travelling():
        fixed = f"sizeof(struct vgw_req_{f.name})" if request_fields(f) else "0"
        handles = refs(f)
        table = "{" + ", ".join(_entry_ref(f, p) for p in handles) + "}" if handles else "{{0}}"
        out.append(
            f'    [VGW_OP_{f.name}] = {{"{f.name}", dispatch_{f.name}, {_entry_flags(f)}, {fixed}, {len(handles)},\n'
            f"     {table}}},\n"
        )
    out.append("};\n")
    return "".join(out)
