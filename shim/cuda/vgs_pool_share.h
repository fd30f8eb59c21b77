/* Pools that other clients use. */
#ifndef VGS_POOL_SHARE_H
#define VGS_POOL_SHARE_H

#include "vgw_cuda.h"
#include <stdbool.h>

/* Whether a pool of these properties can be shared as they ask. */
bool vgs_pool_types_are_offered(const CUmemPoolProps *props);

#endif
