"""Run the real worker entry on the echo executor: `python run_entry.py LIBRARY ARGUMENTS...`."""

from __future__ import annotations

import sys
import types

import cffi

CDEF = """
struct vgx_backend;
enum { VGX_FEATURE_PINNED_FD = 1, VGX_FEATURE_RING = 2, VGX_FEATURE_REGION = 4, VGX_FEATURE_PROGRESS = 8 };
struct vgx_serve_options {
  const struct vgx_backend *backend; uint32_t features; uint32_t max_threads; uint32_t spin_us;
  void (*log)(int level, const char *line);
  int region_fd; uint64_t region_offset, region_nbytes;
  const uint8_t *host_devices; struct vgw_ledger *ledger; uint32_t ledger_row; uint64_t host_limit_nbytes;
  bool host_limit_of_share; const char *share; uint64_t quotas[10]; uint64_t calls_per_s;
  uint32_t denied; void (*on_denied)(unsigned int count, const char *function);
};
struct vgw_ledger *vgx_ledger_map(int fd, uint32_t row);
enum vgx_reason { VGX_ENDED_BY_CLIENT = 0, VGX_ENDED_BY_VIOLATION = 1, VGX_ENDED_BY_CHANNEL = 2 };
int vgx_serve(int fd, const struct vgx_serve_options *options);
int vgx_restrict_threads(int ruleset_fd);
int vgx_control_start(int fd, uint64_t (*used)(uint32_t device), uint32_t device_count);
void vgx_meter_set(int fd);
void vgx_meter_finish(void);
const char *vgx_reason_text(void);
void vgx_progress(const char *line, bool ends);
const struct vgx_backend *vgx_cuda_backend(const char *path, const char **why);
const struct vgx_backend *vgx_warm_backend(const struct vgx_backend *backend, int32_t device);
"""


def main() -> None:
    ffi = cffi.FFI()
    ffi.cdef(CDEF)
    executor = types.ModuleType("vgpud._executor")
    executor.ffi, executor.lib = ffi, ffi.dlopen(sys.argv[1])
    sys.modules["vgpud._executor"] = executor
    del sys.argv[1]
    from vgpud.worker import image_params
    from vgpud.worker.entry import main as worker_main

    image_params.install = lambda _ffi, _lib: None  # install() serves functions that this executor does not call
    worker_main()


if __name__ == "__main__":
    main()
