/* Pools that other clients use. */
#ifndef VGS_POOL_SHARE_H
#define VGS_POOL_SHARE_H

#include "vgw_cuda.h"
#include <stdbool.h>

/* Whether the handle types that these properties request are offered. */
bool vgs_pool_types_are_offered(const CUmemPoolProps *props);

#endif
