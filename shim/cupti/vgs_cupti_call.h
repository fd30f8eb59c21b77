/* Runs before and after each exported call while anything is enabled. */
#ifndef VGS_CUPTI_CALL_H
#define VGS_CUPTI_CALL_H

#include "vgs_profiling.h"

extern const struct vgs_observer vgs_cupti_observer;

#endif
