/* Libraries: images that are sent when they are first asked for. */
#ifndef VGS_LIBRARY_H
#define VGS_LIBRARY_H

#include "vgs_objects.h"

/* Make sure that the worker has loaded the library; returns the result of the load. */
CUresult vgs_library_ready(struct vgs_library *library);

/* Called before a library is unloaded, so that no thread loads it any more. False: the worker never had the library;
 * its object has been destroyed. */
bool vgs_library_end(struct vgs_library *library);

/* The library of a handle, loaded in the worker. */
CUresult vgs_library_find(CUlibrary handle, struct vgs_library **library);

#endif
