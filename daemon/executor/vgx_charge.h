/* What this worker's session has of each card's memory, against the limit of its tenant's share. The cuda backend does
 * not know sizes afterwards, so each allocation has an entry here; the sums are this worker's row of the ledger, as the
 * simulator's are (vgw_ledger.h). Any thread. */
#ifndef VGX_CHARGE_H
#define VGX_CHARGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vgw_cuda.h"

struct vgw_ledger;

/* What an entry's key is. */
enum vgx_charge_kind {
  VGX_CHARGE_ADDRESS,  /* an address of linear memory */
  VGX_CHARGE_PHYSICAL, /* a handle of cuMemCreate */
  VGX_CHARGE_MAPPING,  /* an address at which such memory is mapped; shares its bytes */
  VGX_CHARGE_ARRAY,
  VGX_CHARGE_MIPMAP,
  VGX_CHARGE_GRAPH,   /* an executable graph plus a device's number: its nodes that allocate there */
  VGX_CHARGE_HEAP,    /* a context: the heap of its kernels' malloc */
  VGX_CHARGE_CONTEXT, /* a context of cuCtxCreate; no bytes */
};

/* `host_devices`: by the driver's number of a device, its number among the host's; `count` of them. The limit is of
 * each device. Once in a process. */
void vgx_charge_init(struct vgw_ledger *ledger, uint32_t row, uint64_t limit_nbytes, const uint8_t *host_devices,
                     uint32_t count);

/* Bytes of a device that count for this session; 0 before vgx_charge_init(), and for a device that is not there. */
uint64_t vgx_charge_used(uint32_t device);

/* Whether this worker has a device of this number; there are at most VGW_SIMULATED_DEVICES_MAX. */
bool vgx_charge_is_device(CUdevice device);

/* Count bytes of a device, unless the tenant would have more than its limit. */
bool vgx_charge_reserve(CUdevice device, uint64_t nbytes);

/* Count bytes that are there already, and no longer count some. */
void vgx_charge_change(CUdevice device, uint64_t from_nbytes, uint64_t to_nbytes);

/* What the driver has taken besides (vgx_limit_driver.c); counts, too. */
uint64_t vgx_charge_other(CUdevice device);
void vgx_charge_set_other(CUdevice device, uint64_t nbytes);

/* What entries and reservations count, without the above, and what of it are graphs'. */
uint64_t vgx_charge_counted(CUdevice device, uint64_t *of_graphs);

/* Between these calls counting and allocating may differ; not to be nested. vgx_charge_exclude() waits until no thread
 * is between them, and keeps them out until vgx_charge_include(); false: some were not done in time. */
void vgx_charge_begin(void);
void vgx_charge_finish(void);
bool vgx_charge_exclude(uint32_t patience_ms);
void vgx_charge_include(void);

/* What the tenant may still allocate; negative if it has more than it may. */
int64_t vgx_charge_room(CUdevice device);

/* The limit; devices have at least as much. */
uint64_t vgx_charge_limit(void);

/* Have an entry own bytes that are counted. `context` destroys it; NULL: the device's primary context, if any does.
 * False: memory is short, and nothing has changed. */
bool vgx_charge_add(enum vgx_charge_kind kind, uint64_t key, CUdevice device, uint64_t nbytes, CUcontext context);

/* Have a mapping share the bytes of physical memory, which count until no entry has them. */
bool vgx_charge_map(uint64_t address, uint64_t span, uint64_t handle);

/* Whether there is an entry. */
bool vgx_charge_has(enum vgx_charge_kind kind, uint64_t key);

/* What the driver frees can be given out again, to another thread, before its call returns. So an entry is taken out
 * before, with its bytes still counting, and ended after: if `done`, the bytes that no other entry has no longer count;
 * else it is back. vgx_charge_take() returns NULL if there is no such entry, with which vgx_charge_end() does nothing.
 */
struct vgx_charge_entry *vgx_charge_take(enum vgx_charge_kind kind, uint64_t key);
uint64_t vgx_charge_entry_nbytes(const struct vgx_charge_entry *entry); /* 0 for NULL */
CUdevice vgx_charge_entry_device(const struct vgx_charge_entry *entry);
void vgx_charge_end(struct vgx_charge_entry *entry, bool done);

/* The bytes of an entry; 0: there is none. */
uint64_t vgx_charge_nbytes(enum vgx_charge_kind kind, uint64_t key);

/* Remove the mappings that lie in a range. */
void vgx_charge_unmap(uint64_t address, uint64_t span);

/* Likewise for the entries that a context of `device` destroys: name them before, and remove them after, those for
 * which `gone` is true; it must not call these functions. NULL: none is, as the context is still there. */
void vgx_charge_take_of(CUcontext context, CUdevice device);
void vgx_charge_end_of(CUcontext context, CUdevice device, bool (*gone)(enum vgx_charge_kind kind, uint64_t key));

#endif
