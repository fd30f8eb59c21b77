/* Typed handle tables: ids are the client's choice, objects are the backend's. Ids are never reused, so a gone one
 * stays gone. Looking one up takes no lock: every launch does so three times, on as many threads as there are rings. */
#include <stdlib.h>

#include "vgx_session.h"

#define SLACK 65536u /* ids may run ahead of use by this much: client threads take them concurrently */

/* What a place holds that has no object. NULL: its id was never used. */
static char reserved, gone;

/* The place of an id; NULL when no id near it was ever used. */
static _Atomic(void *) *place_of(struct vgx_table *t, uint32_t id) {
  struct vgx_leaf *leaf = id < VGX_LEAVES * VGX_LEAF_SIZE
                              ? atomic_load_explicit(&t->leaves[id / VGX_LEAF_SIZE], memory_order_acquire)
                              : NULL;
  return leaf ? &leaf->objects[id % VGX_LEAF_SIZE] : NULL;
}

CUresult vgx_handle(struct vgx_session *s, enum vgw_kind kind, uint32_t id, void **object) {
  *object = NULL;
  if (id == 0)
    return CUDA_SUCCESS;
  _Atomic(void *) *place = place_of(&s->tables[kind], id);
  /* Stored (release) by the thread that made the object, perhaps another ring's. */
  void *found = place ? atomic_load_explicit(place, memory_order_acquire) : NULL;
  if (!found)
    return vgx_violation(s, "a handle that was never made");
  if (found == &gone || found == &reserved)
    return kind == VGW_KIND_CONTEXT ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
  *object = found;
  return CUDA_SUCCESS;
}

bool vgx_handle_is(struct vgx_session *s, enum vgw_kind kind, uint32_t id, const void *object) {
  _Atomic(void *) *place = place_of(&s->tables[kind], id);
  return place && atomic_load_explicit(place, memory_order_acquire) == object;
}

bool vgx_handle_reserve(struct vgx_session *s, enum vgw_kind kind, uint32_t id) {
  struct vgx_table *t = &s->tables[kind];
  bool ok = false;
  pthread_mutex_lock(&s->table_lock);
  if (id != 0 && id < VGX_LEAVES * VGX_LEAF_SIZE && id <= 2 * t->used + SLACK) {
    if (!place_of(t, id))
      atomic_store_explicit(&t->leaves[id / VGX_LEAF_SIZE], calloc(1, sizeof(struct vgx_leaf)), memory_order_release);
    _Atomic(void *) *place = place_of(t, id);
    if (place && !atomic_load_explicit(place, memory_order_relaxed)) {
      atomic_store_explicit(place, &reserved, memory_order_relaxed);
      t->used++;
      ok = true;
    }
  }
  pthread_mutex_unlock(&s->table_lock);
  return ok;
}

void vgx_handle_set(struct vgx_session *s, enum vgw_kind kind, uint32_t id, void *object) {
  _Atomic(void *) *place = place_of(&s->tables[kind], id);
  if (place && atomic_load_explicit(place, memory_order_relaxed))
    atomic_store_explicit(place, object ? object : &gone, memory_order_release);
}

void vgx_handles_free(struct vgx_session *s) {
  for (int kind = 0; kind < VGW_KIND_COUNT; kind++)
    for (uint32_t i = 0; i < VGX_LEAVES; i++) {
      free(atomic_load(&s->tables[kind].leaves[i]));
      atomic_store(&s->tables[kind].leaves[i], NULL);
    }
  free(s->graph_parts);
  s->graph_parts = NULL;
  s->graph_part_count = s->graph_part_capacity = 0;
}
