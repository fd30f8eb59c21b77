/* Storage that NVIDIA's libraries hang on contexts. */
#ifndef VGS_CLS_H
#define VGS_CLS_H

#include "vgs_objects.h"

/* Context-local storage. `context` NULL: the current one.
 * Errors: INVALID_CONTEXT; get and delete: INVALID_HANDLE if there is no such entry. */
CUresult vgs_cls_set(CUcontext context, void *key, void *value, void (*destroy)(CUcontext, void *, void *));
CUresult vgs_cls_delete(CUcontext context, void *key);
CUresult vgs_cls_get(void **value, CUcontext context, void *key);

/* Run the destructors of all entries, and drop them. */
void vgs_cls_clear(struct vgs_context *context);

#endif
