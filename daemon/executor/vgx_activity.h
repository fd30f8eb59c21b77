/* Records of the device's work, kept while a profiler in the client asks for them. */
#ifndef VGX_ACTIVITY_H
#define VGX_ACTIVITY_H

#include "vgw_activity.h"
#include <stdint.h>

/* Add one record (NULL: only count a lost record); `name` (NULL: none) is copied. From any thread. */
void vgx_activity_put(const struct vgw_activity *activity, const char *name);

/* Drop all records and names. Called between sessions. */
void vgx_activities_clear(void);

#endif
