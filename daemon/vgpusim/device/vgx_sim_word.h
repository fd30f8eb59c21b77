/* Operations on words of memory, in streams and graphs. */
#ifndef VGX_SIM_WORD_H
#define VGX_SIM_WORD_H

#include "vgx_sim_internal.h"

/* Create an operation that executes these in order; it can run any number of times. */
CUresult vgx_sim_words_create(const CUstreamBatchMemOpParams *params, uint32_t count, struct vgx_sim_op **op);
/* The operation's parameters, which are valid as long as it exists. Returns their number. */
uint32_t vgx_sim_words_of(struct vgx_sim_op *op, CUstreamBatchMemOpParams **params);
/* See end_waits in vgx_backend.h. */
void vgx_sim_words_end(bool over);

#endif
