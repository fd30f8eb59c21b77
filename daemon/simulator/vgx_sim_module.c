/* Modules. */
#include "vgx_sim_internal.h"

void vgx_sim_unload_modules(CUcontext ctx) { ctx->modules = NULL; }
