/* Kernels of libraries, and the functions that stand for them in each context. */
#ifndef VGX_SIM_KERNEL_H
#define VGX_SIM_KERNEL_H

#include "vgx_sim_module.h"

/* The function a CUfunction or CUkernel handle means in `ctx`, its module pinned until vgx_sim_function_unpin. */
CUresult vgx_sim_function_pin(CUcontext ctx, CUfunction handle, CUfunction *function);
void vgx_sim_function_unpin(CUfunction function);

/* The module of a library in a context, loaded on first use. */
CUresult vgx_sim_library_module(CUlibrary library, CUcontext ctx, CUmodule *module);

/* Set an attribute; the function is pinned or new. */
CUresult vgx_sim_function_set(CUfunction function, int attribute, int value);

#endif
