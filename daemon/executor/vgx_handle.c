/* Typed handle tables: ids are the client's choice, objects are the backend's. Ids are never reused, so a gone one
 * stays gone. */
#include <stdlib.h>

#include "vgx_session.h"

#define MAX_IDS (1u << 22)
#define SLACK 65536u /* ids may run ahead of use by this much: client threads take them concurrently */

CUresult vgx_handle(struct vgx_session *s, enum vgw_kind kind, uint32_t id, void **object) {
  if (id == 0) {
    *object = NULL;
    return CUDA_SUCCESS;
  }
  struct vgx_table *t = &s->tables[kind];
  pthread_mutex_lock(&s->table_lock);
  uint8_t state = id < t->count ? t->slots[id].state : 0;
  *object = state == 2 ? t->slots[id].object : NULL;
  pthread_mutex_unlock(&s->table_lock);
  if (state == 2)
    return CUDA_SUCCESS;
  if (state == 0)
    return vgx_violation(s, "a handle that was never made");
  return kind == VGW_KIND_CONTEXT ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
}

bool vgx_handle_reserve(struct vgx_session *s, enum vgw_kind kind, uint32_t id) {
  struct vgx_table *t = &s->tables[kind];
  bool ok = false;
  pthread_mutex_lock(&s->table_lock);
  if (id != 0 && id < MAX_IDS && id <= 2 * t->used + SLACK) {
    if (id >= t->count) {
      uint32_t count = t->count ? t->count : 64;
      while (count <= id)
        count *= 2;
      struct vgx_slot *slots = realloc(t->slots, count * sizeof *slots);
      if (slots) {
        for (uint32_t i = t->count; i < count; i++)
          slots[i] = (struct vgx_slot){0};
        t->slots = slots;
        t->count = count;
      }
    }
    if (id < t->count && t->slots[id].state == 0) {
      t->slots[id].state = 1;
      t->used++;
      ok = true;
    }
  }
  pthread_mutex_unlock(&s->table_lock);
  return ok;
}

void vgx_handle_set(struct vgx_session *s, enum vgw_kind kind, uint32_t id, void *object) {
  struct vgx_table *t = &s->tables[kind];
  pthread_mutex_lock(&s->table_lock);
  if (id < t->count && t->slots[id].state != 0) {
    t->slots[id].object = object;
    t->slots[id].state = object ? 2 : 3;
  }
  pthread_mutex_unlock(&s->table_lock);
}

void vgx_handles_free(struct vgx_session *s) {
  for (int kind = 0; kind < VGW_KIND_COUNT; kind++) {
    free(s->tables[kind].slots);
    s->tables[kind] = (struct vgx_table){0};
  }
  free(s->graph_parts);
  s->graph_parts = NULL;
  s->graph_part_count = s->graph_part_capacity = 0;
}
