/* Launches as of CUDA 1 to 3. */
#ifndef VGS_LAUNCH_OLD_H
#define VGS_LAUNCH_OLD_H

#include "vgw_cuda.h"

/* Whether a texture reference may be set for a kernel. */
CUresult vgs_param_set_texref(CUfunction function, int unit, uint32_t texref);

#endif
