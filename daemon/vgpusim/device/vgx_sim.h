/* The simulator as the executor sees it: configuration, output, and the table of driver functions.
 *
 * The driver functions themselves stand in vgx_sim_table.h, which is generated. Everything here may be called from any
 * thread. */
#ifndef VGX_SIM_H
#define VGX_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vgw_cuda.h"
#include "vgw_device_memory.h"
#include "vgx_sim_hooks.h"

struct vgw_ledger;

#define VGX_SIM_DEVICES_MAX VGW_SIMULATED_DEVICES_MAX
#define VGX_SIM_ATTRIBUTES_MAX 192u
#define VGX_SIM_LIMITS_MAX 16u

/* What the C half needs of a device profile: the inventory's own tables (protocol/wire.md, DEVICE). */
struct vgx_sim_device_properties {
  uint64_t memory_nbytes;
  uint64_t context_nbytes; /* device memory a context costs */
  int32_t priority_least, priority_greatest;
  int32_t attributes[VGX_SIM_ATTRIBUTES_MAX]; /* by CUdevice_attribute; INT32_MIN: not answered */
  uint64_t limits[VGX_SIM_LIMITS_MAX];        /* initial values by CUlimit; UINT64_MAX: unsupported */
};

/* Install the Python half. `hooks` must outlive the process; call once, before any driver function. */
void vgx_sim_set_hooks(const struct vgx_sim_hooks *hooks);

/* Describe device `device` (dense from 0) and reserve its address space. INVALID_VALUE: index or numbers out of range,
 * or configured already; OPERATING_SYSTEM: the address space is taken. */
CUresult vgx_sim_configure(uint32_t device, const struct vgx_sim_device_properties *properties);

/* The number of a configured device among the host's, if it is another one: in the ledger, and for other processes that
 * open what this one exports. Before vgx_sim_set_ledger. */
void vgx_sim_set_host_number(uint32_t device, uint32_t number);

/* Wall-clock limit of one kernel in milliseconds; 0: none (default). A kernel past it ends with LAUNCH_TIMEOUT (702).
 */
void vgx_sim_set_watchdog(uint64_t limit_ms);

/* Threads that run kernels, 1..256; 0: one per CPU (default). Takes effect when the pool starts, at the first kernel.
 */
void vgx_sim_set_threads(uint32_t count);

/* Receive log lines (no newline) instead of stderr. Called with no lock held. `reason` logs a reason that the client
 * also gets; it may replace the text, of at most `capacity` bytes with its terminator, by one that people can read. */
void vgx_sim_set_log(void (*line)(const char *line), void (*reason)(char *text, size_t capacity));

/* Move up to `capacity` bytes of what kernels printed, in any context, to `text`; returns the number of bytes. A
 * message is never reordered within its context, but may be split by `capacity`. */
uint64_t vgx_sim_take_output(char *text, uint64_t capacity);

/* Whether there is output that was not taken yet. */
bool vgx_sim_output_pending(void);

/* Receives the reason for each failure, in addition to the log. */
void vgx_sim_set_reason(void (*reason)(CUresult result, bool ends, const char *text));

/* Bytes in use on device `device`, contexts included: the total less what cuMemGetInfo calls free. 0 if there is no
 * such device. */
uint64_t vgx_sim_memory_used(uint32_t device);

/* What cuModuleLoadData and cuLibraryLoadData do, for an image of `nbytes` readable bytes. */
CUresult vgx_sim_load_module(CUmodule *module, const void *image, uint64_t nbytes);
CUresult vgx_sim_load_library(CUlibrary *library, const void *image, uint64_t nbytes);

/* Link PTX inputs for `device`; *out is malloc'ed and the caller's. */
CUresult vgx_sim_link(CUdevice device, const void *const *data, const uint64_t *nbytes, uint32_t count, void **out,
                      uint64_t *out_nbytes);

/* The member managed_variable of struct vgx_backend. */
CUresult vgx_sim_managed_variable(CUlibrary library, const char *name, uint64_t address, uint64_t *placed,
                                  uint64_t *nbytes);

/* Share the configured devices' memory with other processes (vgw_ledger.h). `row` is this process's.
 * `limit_nbytes`: of each device, for the tenant of this row; UINT64_MAX: the tenant has no limit of its own. */
void vgx_sim_set_ledger(struct vgw_ledger *ledger, uint32_t row, uint64_t limit_nbytes);

/* Place the device's memory in the client's file (vgw_device_memory.h); the caller keeps the descriptor. INVALID_VALUE:
 * the file is too small or could shrink, or the device has a file already; NOT_READY: memory is allocated. */
CUresult vgx_sim_device_file(CUdevice device, int fd);

struct vgx_backend;
/* The simulator's table of functions for the executor. */
const struct vgx_backend *vgx_sim_backend(void);

/* Sharing physical memory with another simulator's process: members of struct vgx_backend. */
struct vgx_ipc_object;
CUresult vgx_sim_share_export(struct vgx_ipc_object *object, CUmemGenericAllocationHandle handle);
CUresult vgx_sim_share_open(CUmemGenericAllocationHandle *handle, CUmemAllocationProp *prop,
                            const struct vgx_ipc_object *object);

#endif
