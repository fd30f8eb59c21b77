/* The client's copy of a context's limits. */
#ifndef VGS_LIMIT_H
#define VGS_LIMIT_H

#include "vgs_objects.h"

/* Forget a context's limits when it ends: its next life begins with the device's own limits. */
void vgs_limit_reset(struct vgs_context *context);

/* Returns INVALID_VALUE or UNSUPPORTED_LIMIT as the device does. */
CUresult vgs_limit_check(int limit);

/* The current context's limit, if it is known. If not: ask the worker, and pass its answer and `asked_at`
 * to vgs_limit_set. */
bool vgs_limit_is_known(int limit, size_t *value, uint64_t *asked_at);
void vgs_limit_set(int limit, size_t value, uint64_t asked_at);

/* Called before and after a change: known values and answers under way become invalid. INVALID_VALUE: no such limit. */
CUresult vgs_limit_changes(int limit);

#endif
