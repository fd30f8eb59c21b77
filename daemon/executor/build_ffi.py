"""Build vgpud._executor: the executor, the simulator's C half and the generated dispatcher as one extension module.

`python daemon/executor/build_ffi.py` has cffi write its half (API mode), compiles what has changed, and puts the
extension beside the daemon's Python files. CDEF declares what Python calls, HOOKS the callbacks that Python implements;
the C compiler checks both against the headers. VGPU_CFLAGS adds flags.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

from cffi import FFI

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "shim"))

from native import GEN, Toolchain, is_older, options, run  # noqa: E402

INCLUDES = [ROOT / folder for folder in ("daemon/executor", "daemon/vgpusim/device", "protocol/c", "build/gen")]

CDEF = """
/* executor */
struct vgx_backend;
struct vgw_ledger;
struct vgx_turns;
#define VGX_FEATURE_PINNED_FD ...
#define VGX_FEATURE_RING ...
#define VGX_FEATURE_REGION ...
#define VGX_FEATURE_PROGRESS ...
#define VGX_ENDED_BY_CLIENT ...
#define VGX_ENDED_BY_VIOLATION ...
#define VGX_ENDED_BY_CHANNEL ...
#define VGX_ENDED_BY_RESOURCES ...
#define VGX_ENDED_BY_STOP ...
struct vgx_serve_options {
  const struct vgx_backend *backend;
  uint32_t features;
  uint32_t max_threads;
  uint32_t spin_us;
  void (*log)(int level, const char *line);
  int region_fd;
  uint64_t region_offset, region_nbytes;
  const uint8_t *host_devices;
  struct vgw_ledger *ledger;
  uint32_t ledger_row;
  uint64_t host_limit_nbytes;
  bool host_limit_of_share;
  const char *share;
  uint64_t quotas[...];
  uint64_t calls_per_s;
  uint32_t denied;
  void (*on_denied)(unsigned int count, const char *function);
};
struct vgw_ledger *vgx_ledger_map(int fd, uint32_t row);
struct vgx_turns *vgx_turns_map(int fd);
void vgx_gate_set(struct vgx_turns *turns, uint32_t tenant, uint32_t row, const uint8_t *host_devices,
                  uint32_t device_count);
int vgx_serve(int fd, const struct vgx_serve_options *options);
void vgx_image_cache_set(int fd);
void vgx_meter_set(int fd);
void vgx_recording_set(int fd, uint64_t limit_nbytes);
void vgx_meter_finish(void);
void vgx_ipc_set(int fd);
void vgx_progress(const char *line, bool ends);
int vgx_restrict_threads(int ruleset_fd);
int vgx_control_start(int fd, uint64_t (*used)(uint32_t device), uint32_t device_count);
struct vgx_range {
  uintptr_t address;
  size_t nbytes;
  bool folds;
};
int vgx_template_make(const struct vgx_range *ranges, uint32_t count);
void vgx_template_open(void);
const char *vgx_reason_text(void);
void vgx_stop(void);
const struct vgx_backend *vgx_cuda_backend(const char *path, const char **why);
void vgx_cuda_install_python(void);
const struct vgx_backend *vgx_warm_backend(const struct vgx_backend *backend, int32_t device);
const struct vgx_backend *vgx_limit_backend(const struct vgx_backend *backend, struct vgw_ledger *ledger, uint32_t row,
                                            uint64_t limit_nbytes, const uint8_t *host_devices, uint32_t count);
void vgx_usage_init(const char *library, const char *devices);

/* simulator */
#define VGX_SIM_ABI_VERSION ...
#define VGX_SIM_WHY_NBYTES ...
#define VGX_SIM_NAME_NBYTES ...
#define VGX_SIM_DEVICES_MAX ...
#define VGX_SIM_ATTRIBUTES_MAX ...
#define VGX_SIM_LIMITS_MAX ...
#define VGX_SIM_COMPILE_COOPERATIVE ...
#define VGX_SIM_COMPILE_WATCHED ...
#define VGX_SIM_COMPILE_TRACKED ...
#define VGX_SIM_COMPILE_COUNTED ...
#define VGX_SIM_COMPILE_CLUSTER_SHIFT ...
struct vgx_sim_device_properties {
  uint64_t memory_nbytes;
  uint64_t context_nbytes;
  int32_t priority_least, priority_greatest;
  int32_t attributes[...];
  uint64_t limits[...];
};
struct vgx_sim_kernel_info {
  uint64_t kernel;
  uint32_t param_count, param_nbytes, shared_nbytes, const_nbytes, local_nbytes, register_count, max_threads;
  uint32_t required_block[3];
  uint32_t cluster[3];
  int32_t ptx_version, binary_version;
  ...;
};
struct vgx_sim_variable {
  uint64_t nbytes, align;
  uint32_t space, flags;
};
struct vgx_sim_compiled {
  ...; /* code: written as an address by the glue, through vgx_sim_compiled_set */
};
struct vgx_sim_followed {
  uint64_t count;
  uint64_t pointers[...];
};
const struct vgx_backend *vgx_sim_backend(void);
int32_t vgx_sim_configure(uint32_t device, const struct vgx_sim_device_properties *properties);
void vgx_sim_set_host_number(uint32_t device, uint32_t number);
void vgx_sim_set_epoch(uint32_t epoch);
uint64_t vgx_sim_memory_used(uint32_t device);
uint64_t vgx_charge_used(uint32_t device);
void vgx_sim_set_ledger(struct vgw_ledger *ledger, uint32_t row, uint64_t limit_nbytes);
void vgx_sim_set_watchdog(uint64_t limit_ms);
void vgx_sim_set_threads(uint32_t count);
extern uint32_t vgx_sim_tools;
extern bool vgx_sim_counts;
void vgx_sim_count_unfinished(void);
void vgx_sim_report_totals(void);
void vgx_sim_install_python(void);
void vgx_sim_compiled_set(struct vgx_sim_compiled *compiled, uintptr_t code, uint64_t frame_nbytes,
                          uint64_t local_nbytes, uint32_t shared_static_nbytes, uint32_t cooperative);
void vgx_sim_schedule_wait(void);
void *malloc(size_t nbytes);
"""

# Implemented in vgpusim.glue; the last three in vgpud.worker.image_params.
HOOKS = """
int32_t vgx_py_load_image(uint32_t, const void *, uint64_t, uint64_t *, uint32_t *, uint32_t *, char *);
int32_t vgx_py_unload_image(uint64_t);
int32_t vgx_py_kernel_name(uint64_t, uint32_t, char *);
int32_t vgx_py_describe_kernel(uint64_t, const char *, struct vgx_sim_kernel_info *, uint32_t *, uint32_t *, uint32_t,
                               char *);
int32_t vgx_py_describe_variable(uint64_t, uint32_t, char *, struct vgx_sim_variable *);
int32_t vgx_py_initial_bytes(uint64_t, uint32_t, const uint64_t *, uint8_t *);
int32_t vgx_py_compile(uint64_t, uint32_t, uint32_t, uint32_t, uint32_t, const struct vgx_sim_followed *,
                       const uint64_t *, struct vgx_sim_compiled *, uint32_t *, uint32_t, uint32_t *, char *);
int32_t vgx_py_link_images(uint32_t, const void *const *, const uint64_t *, uint32_t, void **, uint64_t *, char *);
void vgx_py_log(const char *);
void vgx_py_log_reason(char *, size_t);
int32_t vgx_py_params_open(const void *, uint64_t, uint64_t *);
void vgx_py_params_close(uint64_t);
int32_t vgx_py_params_param(uint64_t, const char *, uint64_t, uint64_t *, uint64_t *);
"""

SOURCE = """
#include <stdlib.h>
#include "vgx_charge.h"
#include "vgx_control.h"
#include "vgx_cuda_params.h"
#include "vgx_gate.h"
#include "vgx_ipc.h"
#include "vgx_limit.h"
#include "vgx_recording.h"
#include "vgx_serve.h"
#include "vgx_sim.h"
#include "vgx_sim_context.h"
#include "vgx_sim_count.h"
#include "vgx_sim_schedule.h"
#include "vgx_sim_watch.h"
#include "vgx_template.h"
#include "vgx_turn.h"
#include "vgx_usage.h"

void vgx_sim_log(const char *format, ...);

%(hooks)s
static void vgx_sim_install_python(void) {
  static const struct vgx_sim_hooks hooks = {
      .load_image = vgx_py_load_image,
      .unload_image = vgx_py_unload_image,
      .kernel_name = vgx_py_kernel_name,
      .describe_kernel = vgx_py_describe_kernel,
      .describe_variable = vgx_py_describe_variable,
      .initial_bytes = vgx_py_initial_bytes,
      .compile = vgx_py_compile,
      .link_images = vgx_py_link_images,
  };
  vgx_sim_set_log(vgx_py_log, vgx_py_log_reason);
  vgx_sim_set_hooks(&hooks);
}

static void vgx_cuda_install_python(void) {
  static const struct vgx_params_reader reader = {vgx_py_params_open, vgx_py_params_close, vgx_py_params_param};
  vgx_cuda_params_set_reader(&reader);
}

static void vgx_sim_report_totals(void) { vgx_sim_watch_totals(vgx_sim_log); }

static void vgx_sim_compiled_set(struct vgx_sim_compiled *compiled, uintptr_t code, uint64_t frame_nbytes,
                                 uint64_t local_nbytes, uint32_t shared_static_nbytes, uint32_t cooperative) {
  *compiled = (struct vgx_sim_compiled){(const struct vgx_sim_code *)code, frame_nbytes, local_nbytes,
                                        shared_static_nbytes, cooperative};
}
"""


def sources() -> list[Path]:
    """List the C files of the extension, except the one that cffi generates."""
    folders = (ROOT / "daemon/executor", ROOT / "daemon/vgpusim/device")
    return [*(path for folder in folders for path in sorted(folder.glob("*.c"))), *sorted(GEN.glob("vgx_*.c"))]


def write_binding(path: Path) -> None:
    """Let cffi write its half of the extension; an unchanged file keeps its modification time."""
    ffi = FFI()
    ffi.cdef(CDEF + 'extern "Python" {' + HOOKS + "}")
    ffi.set_source("vgpud._executor", SOURCE % {"hooks": re.sub(r"(?m)^(?=\w)", "static ", HOOKS)})
    with contextlib.redirect_stdout(io.StringIO()):
        ffi.emit_c_code(str(path))


def build(out: Path) -> None:
    """Compile what has changed, and put the extension into `out`."""
    toolchain = Toolchain.from_environment(whole_program=False, complete=False)
    given = tuple(shlex.split(os.environ.get("VGPU_CFLAGS", "")))
    toolchain = replace(toolchain, cflags=(*toolchain.cflags, *given), ldflags=(*toolchain.ldflags, *given))
    objects = toolchain.objects("executor")
    binding = objects / "vgx_binding.c"
    write_binding(binding)
    built = toolchain.compile(sources(), objects, INCLUDES)
    # cffi generates this file, so its warnings cannot be fixed here. gcc 14 and later reject a call of an undeclared
    # function, so the same is requested of every compiler.
    cflags = tuple(flag for flag in toolchain.cflags if not flag.startswith("-W"))
    built |= replace(toolchain, cflags=(*cflags, "-Werror=implicit-function-declaration")).compile(
        [binding], objects, [*INCLUDES, Path(sysconfig.get_path("include"))]
    )
    out.mkdir(parents=True, exist_ok=True)
    target = out / f"_executor{sysconfig.get_config_var('EXT_SUFFIX')}"
    if is_older(target, [Path(__file__), *built.values()]):
        toolchain.link(target, [*built.values(), "-ldl", "-lm"])  # a running worker keeps the old file


if __name__ == "__main__":
    given = options(__doc__, ROOT / "daemon/vgpud").parse_args()
    sys.exit(run("daemon/executor/build_ffi.py", lambda: build(given.out)))
