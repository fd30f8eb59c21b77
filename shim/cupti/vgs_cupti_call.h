/* What happens around each exported call while something is asked for. */
#ifndef VGS_CUPTI_CALL_H
#define VGS_CUPTI_CALL_H

#include "vgs_profiling.h"

extern const struct vgs_observer vgs_cupti_observer;

#endif
