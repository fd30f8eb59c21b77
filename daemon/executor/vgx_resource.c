/* Device resources. The driver's part of one is opaque, so the driver only receives resources that it has returned
 * before. */
#include "vgx_resource.h"

#include <stdlib.h>
#include <string.h>

enum { RESOURCES_MAX = 1 << 14 };

/* Compared byte by byte, the driver's part included: the client returns a copy. */
static bool is_known_locked(const struct vgx_session *s, const CUdevResource *resource) {
  const char *wanted = (const char *)resource, *at = (const char *)s->resources;
  uint32_t i = 0;
  while (i < s->resource_count && memcmp(at + i * sizeof *resource, wanted, sizeof *resource))
    i++;
  return i < s->resource_count;
}

CUresult vgx_resources_add(struct vgx_session *s, const CUdevResource *resources, uint64_t count) {
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&s->table_lock);
  for (uint64_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
    if (is_known_locked(s, &resources[i]))
      continue;
    if (s->resource_count == s->resource_capacity && s->resource_count < RESOURCES_MAX) {
      uint32_t capacity = s->resource_capacity ? 2 * s->resource_capacity : 16;
      CUdevResource *grown = realloc(s->resources, capacity * sizeof *grown);
      if (grown) {
        s->resources = grown;
        s->resource_capacity = capacity;
      }
    }
    if (s->resource_count < s->resource_capacity)
      s->resources[s->resource_count++] = resources[i];
    else
      result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  pthread_mutex_unlock(&s->table_lock);
  return result;
}

CUresult vgx_resources_add_split(struct vgx_session *s, const CUdevResource *groups, uint64_t count,
                                 const CUdevResource *remaining) {
  CUresult result = vgx_resources_add(s, groups, count);
  return result == CUDA_SUCCESS ? vgx_resources_add(s, remaining, 1) : result;
}

bool vgx_resources_are_known(struct vgx_session *s, const CUdevResource *resources, uint64_t count) {
  bool known = true;
  pthread_mutex_lock(&s->table_lock);
  for (uint64_t i = 0; i < count && known; i++)
    known = is_known_locked(s, &resources[i]);
  pthread_mutex_unlock(&s->table_lock);
  return known;
}
