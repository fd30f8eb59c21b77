/* Context-local storage: what NVIDIA's runtime hangs on a context, through the private table of that name. Nearly every
 * runtime call begins with a get, so it stays in the process. */
#include "vgs_cls.h"
#include "vgs_context.h"
#include "vgs_enter.h"
#include <stdlib.h>

static pthread_mutex_t cls_lock = PTHREAD_MUTEX_INITIALIZER;

static struct vgs_cls_entry **find_entry(struct vgs_context *context, const void *key) {
  struct vgs_cls_entry **link = &context->cls;
  while (*link && (*link)->key != key)
    link = &(*link)->next;
  return link;
}

/* The primary context of a device need not be retained to have storage: cudart sets and gets entries at any time. */
static struct vgs_context *storage_context(CUcontext handle) {
  return vgs_object_find(VGW_KIND_CONTEXT, handle ? handle : vgs_thread_top());
}

CUresult vgs_cls_set(CUcontext handle, void *key, void *value, void (*destroy)(CUcontext, void *, void *)) {
  struct vgs_context *context = storage_context(handle);
  if (!context)
    return CUDA_ERROR_INVALID_CONTEXT;
  pthread_mutex_lock(&cls_lock);
  struct vgs_cls_entry **link = find_entry(context, key);
  if (!*link)
    *link = calloc(1, sizeof **link);
  struct vgs_cls_entry *entry = *link;
  if (entry) {
    entry->key = key;
    entry->value = value;
    entry->destroy = destroy;
  }
  pthread_mutex_unlock(&cls_lock);
  return entry ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vgs_cls_delete(CUcontext handle, void *key) {
  struct vgs_context *context = storage_context(handle);
  if (!context)
    return CUDA_ERROR_INVALID_CONTEXT;
  pthread_mutex_lock(&cls_lock);
  struct vgs_cls_entry **link = find_entry(context, key), *entry = *link;
  if (entry)
    *link = entry->next;
  pthread_mutex_unlock(&cls_lock);
  free(entry);
  return entry ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult vgs_cls_get(void **value, CUcontext handle, void *key) {
  struct vgs_context *context = storage_context(handle);
  if (!context)
    return CUDA_ERROR_INVALID_CONTEXT;
  pthread_mutex_lock(&cls_lock);
  struct vgs_cls_entry *entry = *find_entry(context, key);
  void *found = entry ? entry->value : NULL;
  pthread_mutex_unlock(&cls_lock);
  if (!entry)
    return CUDA_ERROR_INVALID_HANDLE; /* never success with NULL: cudart 11.8 to 12.9 crash on it */
  *value = found;
  return CUDA_SUCCESS;
}

/* The destructors may call this library, so no lock is held. */
void vgs_cls_clear(struct vgs_context *context) {
  CUcontext handle = vgs_object_handle(context);
  for (;;) {
    pthread_mutex_lock(&cls_lock);
    struct vgs_cls_entry *entry = context->cls;
    if (entry)
      context->cls = entry->next;
    pthread_mutex_unlock(&cls_lock);
    if (!entry)
      return;
    if (entry->destroy)
      entry->destroy(handle, entry->key, entry->value);
    free(entry);
  }
}
