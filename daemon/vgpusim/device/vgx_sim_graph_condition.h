/* Conditional nodes' work. */
#ifndef VGX_SIM_GRAPH_CONDITION_H
#define VGX_SIM_GRAPH_CONDITION_H

#include "vgx_sim_internal.h"

/* At the begin of a launch: set the condition to its default value, if the program asked for that. */
void vgx_sim_condition_begin(const struct vgx_sim_op *op);
/* Which of the node's graphs is to run now, from 0; UINT32_MAX: none. */
uint32_t vgx_sim_condition_body(const struct vgx_sim_op *op);
/* Whether two conditional nodes are of one type, with as many graphs. */
bool vgx_sim_condition_is_like(const struct vgx_sim_op *op, const struct vgx_sim_op *other);
/* Whether the condition is evaluated again after that graph has run (a while node). */
bool vgx_sim_condition_repeats(const struct vgx_sim_op *op);

#endif
