/* Launches as of CUDA 1 to 3. */
#ifndef VGS_LAUNCH_OLD_H
#define VGS_LAUNCH_OLD_H

#include "vgw_cuda.h"

/* Whether a kernel may be given a texture that was found. */
CUresult vgs_param_set_texref(CUfunction function, int unit, uint32_t texref);

#endif
