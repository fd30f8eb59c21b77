"""The backend table, by which the executor calls a driver, and the simulator's prototypes and table."""

from __future__ import annotations

from protocol.gen.emit_forward import declarations
from protocol.gen.emit_records import BANNER, includes
from protocol.gen.load import Api

PRELUDE = """/* What opens another worker's allocation: the backend's handle, which no client sees, and a descriptor
 * that goes with it, or -1. */
struct vgx_ipc_object {
  CUipcMemHandle handle;
  int fd;
};

/* A driver, as the executor sees it: functions named and typed like libcuda's. NULL: not offered. Filled
 * by the simulator (daemon/vgpusim/device) or from the real libcuda (vgx_cuda.c). */
struct vgx_backend {
  const char *name;
  /* Load an image of known size: what cuModuleLoadData and cuLibraryLoadData do, but bounded. */
  CUresult (*load_module)(CUmodule *module, const void *image, uint64_t nbytes);
  CUresult (*load_library)(CUlibrary *library, const void *image, uint64_t nbytes);
  /* cuLink over PTX inputs; *out is malloc'ed. `out` NULL: only check that each input can be linked. */
  CUresult (*link)(CUdevice device, const void *const *data, const uint64_t *nbytes, uint32_t count, void **out,
                   uint64_t *out_nbytes);
  /* What kernels printed. take_output returns the bytes written to `text`. */
  bool (*output_pending)(void);
  uint64_t (*take_output)(char *text, uint64_t capacity);
  /* Where the backend says why something failed; `ends`: the context is of no use from now on. From any thread. */
  void (*set_reason)(void (*reason)(CUresult result, bool ends, const char *text));
  /* What to call around the compiling that a launch makes it do; `begin` refuses it by not returning SUCCESS. */
  void (*set_compiling)(CUresult (*begin)(uint64_t *begun_ns), void (*end)(uint64_t begun_ns));
  /* `over`: end the waits of streams for words of memory, and begin none: the session is over. NULL: the backend has
   * none that this process could end. */
  void (*end_waits)(bool over);
  /* What a node's work has as its graph_node. NULL: that is not known. */
  CUresult (*node_number)(CUgraphNode node, uint64_t *number);
  /* Profiling: where to put what the device did (NULL: nowhere any more), from any thread (a record of NULL:
   * one is lost), and which of VGW_MEASURE_* to measure, which it changes to what it does measure; the correlation of
   * what the calling thread submits from now on (0: none); and a request to put all that has ended. The last may be
   * NULL, and all if the first is. */
  CUresult (*measure)(void (*put)(const struct vgw_activity *activity, const char *name), unsigned *what);
  void (*correlate)(uint64_t correlation);
  void (*measured)(void);
  /* cuIpcGetMemHandle and cuIpcOpenMemHandle among the backend's own processes. The descriptor is the caller's. */
  CUresult (*ipc_export)(struct vgx_ipc_object *object, CUdeviceptr base);
  CUresult (*ipc_open)(CUdeviceptr *base, const struct vgx_ipc_object *object, unsigned int flags);
  /* Physical memory of cuMemCreate, likewise; `prop` is what it was made with. */
  CUresult (*share_export)(struct vgx_ipc_object *object, CUmemGenericAllocationHandle handle);
  CUresult (*share_open)(CUmemGenericAllocationHandle *handle, CUmemAllocationProp *prop,
                         const struct vgx_ipc_object *object);
  /* A pool, and the allocation at an address of one; `pool` was opened here. */
  CUresult (*pool_export)(struct vgx_ipc_object *object, CUmemoryPool pool);
  CUresult (*pool_open)(CUmemoryPool *pool, const struct vgx_ipc_object *object);
  CUresult (*pointer_export)(struct vgx_ipc_object *object, CUdeviceptr address);
  CUresult (*pointer_open)(CUdeviceptr *address, CUmemoryPool pool, const struct vgx_ipc_object *object);
  /* Its streams wait for words and write them beside the processors; else host functions do for the executor. */
  bool has_words;
  /* A managed variable of a library: *placed is its address, 0 while it has none; `address`, if not 0, is
   * where it lies from now on, in registered memory of its size. */
  CUresult (*managed_variable)(CUlibrary library, const char *name, uint64_t address, uint64_t *placed,
                               uint64_t *nbytes);
  /* cuCtxGetDevice */
  CUresult (*current_device)(CUdevice *device);
  /* Have the device's memory lie in the client's file (vgw_device_memory.h). The descriptor is the caller's. */
  CUresult (*device_file)(CUdevice device, int fd);
"""


def _macro(name: str, rows: list[str]) -> str:
    return f"#define {name}(X) \\\n" + " \\\n".join(f"  X({row})" for row in rows) + "\n\n"


def emit_backend(api: Api) -> str:
    members = api.backend_members()
    out = [
        BANNER,
        "#ifndef VGX_BACKEND_H\n#define VGX_BACKEND_H\n\n",
        includes("<stdbool.h>", "<stdint.h>", "vgw_activity.h", "vgw_cuda.h"),
        PRELUDE,
    ]
    out += [f"  CUresult (*{f.name})({declarations(f.args)});\n" for f in members]
    out.append(
        "};\n\n/* Every member that a libcuda exports, for filling the table by name: VGX_BACKEND_FUNCTIONS(X). */\n"
    )
    out.append(_macro("VGX_BACKEND_FUNCTIONS", [f.name for f in members]))
    out.append("/* Members, and the name by which an older driver exports the same function. */\n")
    out.append(_macro("VGX_BACKEND_OLDER_NAMES", [f"{f.name}, {alias}" for f in members for alias in f.aliases]))
    out.append("/* Those that the simulator offers, each as vgx_sim_NAME. */\n")
    out.append(_macro("VGX_SIMULATOR_FUNCTIONS", [f.name for f in members if f.simulator]))
    out.append("#endif\n")
    return "".join(out)


def emit_simulator(api: Api) -> str:
    """Prototypes of the simulator's functions."""
    out = [BANNER, "#ifndef VGX_SIM_TABLE_H\n#define VGX_SIM_TABLE_H\n\n"]
    out.append('#include "vgw_cuda.h"\n\n')
    out += [f"CUresult vgx_sim_{f.name}({declarations(f.args)});\n" for f in api.backend_members() if f.simulator]
    return "".join(out) + "\n#endif\n"
