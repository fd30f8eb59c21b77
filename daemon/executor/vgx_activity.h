/* Records of the device's work, kept while a profiler in the client asks for them. */
#ifndef VGX_ACTIVITY_H
#define VGX_ACTIVITY_H

#include "vgw_activity.h"
#include <stdint.h>

/* Keep one record (NULL: one is lost, count it); `name` (NULL: none) is copied. From any thread. */
void vgx_activity_put(const struct vgw_activity *activity, const char *name);

/* Forget everything; between sessions. */
void vgx_activities_clear(void);

#endif
