/* Attributes of streams. */
#ifndef VGX_SIM_STREAM_ATTRIBUTE_H
#define VGX_SIM_STREAM_ATTRIBUTE_H

#include "vgx_sim_internal.h"

/* Whether a stream or a kernel node can have this value of an attribute. */
bool vgx_sim_attribute_is_valid(const struct vgx_sim_device *device, int attribute,
                                const CUlaunchAttributeValue *value);

#endif
