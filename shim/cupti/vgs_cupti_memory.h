/* Records of memory allocated and freed, and of memory pools. */
#ifndef VGS_CUPTI_MEMORY_H
#define VGS_CUPTI_MEMORY_H

#include "vgs_cupti_tables.h"
#include "vgs_profiling.h"

/* Before a call that frees memory or destroys a pool: keep in the call what is about to end. No lock held. */
void vgs_cupti_memory_before(struct vgs_api_call *call, const struct vgs_cupti_function *function);

/* After a call: put its records, if it has allocated or freed memory, or made, trimmed or destroyed a pool. No lock
 * held. */
void vgs_cupti_memory_after(struct vgs_api_call *call, const struct vgs_cupti_function *function, int result,
                            uint64_t end);

/* The kind is about to be disabled: put the records of allocations that are not freed yet, if it has such, and forget
 * all allocations unless the other kind needs them. No lock held. */
void vgs_cupti_memory_end(uint32_t kind);

/* In a forked child: no allocation was seen. */
void vgs_cupti_reset_memory(void);

#endif
