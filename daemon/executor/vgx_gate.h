/* Work waits here for its tenant's turn (vgx_turn.h) before it is submitted to a card. */
#ifndef VGX_GATE_H
#define VGX_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "vgw_cuda.h"

struct executor_thread;
struct vgx_operation;
struct vgx_turns;

/* Work that was admitted. */
struct vgx_entry {
  struct vgx_gate *gate; /* NULL: the work is not counted */
  CUstream stream;
  uint32_t cost; /* where its expected time is stored */
  uint64_t expected_ns;
};

/* Called before vgx_serve: sets the tenant whose turns the session's work waits for; cannot be undone. `host_devices`:
 * by device, its number among the host's. */
void vgx_gate_set(struct vgx_turns *turns, uint32_t tenant, uint32_t row, const uint8_t *host_devices,
                  uint32_t device_count);

extern struct vgx_turns *vgx_gate_turns; /* NULL: work waits for nothing */

/* Called around an operation that submits work, with its context current: wait until it may be submitted; count it. */
struct vgx_entry vgx_gate_enter(struct executor_thread *t, const struct vgx_operation *op, const void *fixed,
                                void *const *objects);
void vgx_gate_leave(struct executor_thread *t, const struct vgx_entry *entry, CUresult result);

/* A context is about to be destroyed, and with it the events that were made in it. */
void vgx_gate_clear(void);

#endif
