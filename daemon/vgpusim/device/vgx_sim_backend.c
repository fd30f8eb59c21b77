/* The simulator as the executor's backend: functions that the description marks as simulated; the others are NULL. */
#include "vgx_backend.h"

#include "vgx_sim.h"
#include "vgx_sim_activity.h"
#include "vgx_sim_function.h"
#include "vgx_sim_graph.h"
#include "vgx_sim_ipc.h"
#include "vgx_sim_table.h"
#include "vgx_sim_word.h"

#define MEMBER(name) .name = vgx_sim_##name,

static const struct vgx_backend backend = {.name = "simulator",
                                           .load_module = vgx_sim_load_module,
                                           .load_library = vgx_sim_load_library,
                                           .link = vgx_sim_link,
                                           .output_pending = vgx_sim_output_pending,
                                           .take_output = vgx_sim_take_output,
                                           .set_reason = vgx_sim_set_reason,
                                           .set_compiling = vgx_sim_set_compiling,
                                           .end_waits = vgx_sim_words_end,
                                           .node_number = vgx_sim_node_number,
                                           .measure = vgx_sim_measure,
                                           .correlate = vgx_sim_correlate,
                                           .ipc_export = vgx_sim_ipc_export,
                                           .ipc_open = vgx_sim_ipc_open,
                                           .share_export = vgx_sim_share_export,
                                           .share_open = vgx_sim_share_open,
                                           .pool_export = vgx_sim_pool_export,
                                           .pool_open = vgx_sim_pool_open,
                                           .pointer_export = vgx_sim_pointer_export,
                                           .pointer_open = vgx_sim_pointer_open,
                                           .managed_variable = vgx_sim_managed_variable,
                                           .device_file = vgx_sim_device_file,
                                           VGX_SIMULATOR_FUNCTIONS(MEMBER)};

const struct vgx_backend *vgx_sim_backend(void) { return &backend; }
