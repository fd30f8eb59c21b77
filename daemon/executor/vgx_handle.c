#include "vgx_handle.h"

#include <stdlib.h>
#include <string.h>

#include "vgx_quota.h"
#include "vgx_session.h"

/* An id may exceed the highest one used so far by this much: client threads reserve ids concurrently. */
#define SLACK 65536u

char vgx_place_reserved, vgx_place_destroyed, vgx_place_ending;

/* The thread that executes the record; initial-exec, because vgx_handle and vgx_handles read it. */
_Thread_local __attribute__((tls_model("initial-exec"))) struct executor_thread *vgx_executing;

static bool is_object(const void *found) {
  return found && found != &vgx_place_reserved && found != &vgx_place_destroyed && found != &vgx_place_ending;
}

_Atomic(void *) *vgx_place(struct vgx_session *s, vgx_name name) {
  uint32_t id = vgx_name_id(name);
  struct vgx_leaf *leaf =
      atomic_load_explicit(&s->tables[vgx_name_kind(name)].leaves[id / VGX_LEAF_SIZE], memory_order_acquire);
  return leaf ? &leaf->objects[id % VGX_LEAF_SIZE] : NULL;
}

struct vgx_link *vgx_link_locked(struct vgx_session *s, vgx_name name) {
  struct vgx_leaf *leaf = atomic_load_explicit(
      &s->tables[vgx_name_kind(name)].leaves[vgx_name_id(name) / VGX_LEAF_SIZE], memory_order_relaxed);
  return &leaf->links[vgx_name_id(name) % VGX_LEAF_SIZE];
}

/* --- references of a record --- */

/* Look up a name. Called after the name was written into a slot and a fence was executed. */
static CUresult load(struct vgx_session *s, uint32_t kind, vgx_name name, void **object) {
  _Atomic(void *) *place = vgx_place(s, name);
  /* Stored (release) by the thread that created the object, perhaps another ring's. */
  void *found = place ? atomic_load_explicit(place, memory_order_acquire) : NULL;
  if (!found && !atomic_load(&s->tables[kind].lacks_ids))
    return vgx_violation(s, "a handle that was never made");
  if (!is_object(found))
    return kind == VGW_KIND_CONTEXT ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
  *object = found;
  return CUDA_SUCCESS;
}

static uint32_t field(const void *fixed, uint16_t offset) {
  uint32_t value;
  memcpy(&value, (const char *)fixed + offset, sizeof value);
  return value;
}

static void put(struct vgx_held *held, vgx_name name) {
  uint32_t slot = held->count < VGX_SLOTS ? held->count++ : VGX_SLOTS - 1;
  atomic_store_explicit(&held->slots[slot], held->count < VGX_SLOTS ? name : VGX_EVERYTHING, memory_order_relaxed);
}

CUresult vgx_record_ref(struct executor_thread *t, const struct vgx_operation *op, uint32_t context_id,
                        const void *fixed, void **context, void **objects) {
  struct vgx_session *s = t->s;
  vgx_name context_name = vgx_name_of(VGW_KIND_CONTEXT, context_id), names[VGX_HANDLES_MAX];
  uint32_t kinds[VGX_HANDLES_MAX];
  vgx_executing = t;
  *context = NULL;
  put(&t->held, context_id ? context_name : 0);
  for (uint32_t i = 0; i < op->handle_count; i++) {
    const struct vgx_ref *ref = &op->handles[i];
    uint32_t id = field(fixed, ref->offset);
    kinds[i] = ref->kind < VGW_KIND_COUNT ? ref->kind : field(fixed, ref->kind_offset);
    if (ref->kind == VGW_KIND_COUNT && kinds[i] != VGW_KIND_FUNCTION && kinds[i] != VGW_KIND_KERNEL)
      return vgx_violation(s, "kind of kernel");
    names[i] = id ? vgx_name_of(kinds[i], id) : 0;
    put(&t->held, names[i]);
  }
  atomic_thread_fence(memory_order_seq_cst); /* pairs with a destroying thread's, between marking and reading slots */
  CUresult entered = context_id ? load(s, VGW_KIND_CONTEXT, context_name, context) : CUDA_ERROR_INVALID_CONTEXT;
  if (entered != CUDA_SUCCESS && op->flags & VGX_NEEDS_CONTEXT)
    return entered; /* before the handles: objects that were to be created in it were not */
  for (uint32_t i = 0; i < op->handle_count; i++) {
    objects[i] = NULL;
    CUresult result = names[i] ? load(s, kinds[i], names[i], &objects[i]) : (CUresult)op->handles[i].null_result;
    if (result != CUDA_SUCCESS)
      return result;
  }
  return CUDA_SUCCESS;
}

void vgx_record_unref(struct executor_thread *t) {
  for (uint32_t i = 0; i < t->held.count; i++)
    atomic_store_explicit(&t->held.slots[i], 0, memory_order_release);
  t->held.count = 0;
}

void vgx_record_unref_one(enum vgw_kind kind, uint32_t id) {
  for (uint32_t i = 0; i < vgx_executing->held.count; i++)
    if (atomic_load_explicit(&vgx_executing->held.slots[i], memory_order_relaxed) == vgx_name_make(kind, id))
      atomic_store_explicit(&vgx_executing->held.slots[i], 0, memory_order_release);
}

CUresult vgx_handle(struct vgx_session *s, enum vgw_kind kind, uint32_t id, void **object) {
  *object = NULL;
  if (id == 0)
    return CUDA_SUCCESS;
  vgx_name name = vgx_name_of(kind, id);
  put(&vgx_executing->held, name);
  atomic_thread_fence(memory_order_seq_cst); /* as in vgx_record_ref */
  return load(s, kind, name, object);
}

CUresult vgx_handles(struct vgx_session *s, enum vgw_kind kind, const uint32_t *ids, uint32_t count, void ***objects) {
  void **found = malloc((count + 1) * sizeof *found);
  if (!found)
    return CUDA_ERROR_OUT_OF_MEMORY;
  put(&vgx_executing->held, VGX_EVERYTHING);
  atomic_thread_fence(memory_order_seq_cst); /* as in vgx_record_ref */
  CUresult result = CUDA_SUCCESS;
  for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
    uint32_t id;
    memcpy(&id, ids + i, sizeof id);
    result = id ? load(s, kind, vgx_name_of(kind, id), &found[i]) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && vgx_handle_is_split(s, kind, id))
      result = CUDA_ERROR_NOT_SUPPORTED;
  }
  if (result == CUDA_SUCCESS)
    *objects = found;
  else
    free(found);
  return result;
}

uint32_t vgx_context_id(void) { return vgx_executing->context; }

void vgx_free_array(void *array) { free(*(void **)array); }

/* --- new objects --- */

enum vgx_reserved vgx_handle_reserve(struct vgx_session *s, enum vgw_kind kind, uint32_t id) {
  struct vgx_table *t = &s->tables[kind];
  enum vgw_quota quota = vgx_quota_of_kind[kind];
  enum vgx_reserved reserved = VGX_TAKEN;
  pthread_mutex_lock(&s->table_lock);
  if (id != 0 && id < VGX_LEAVES * VGX_LEAF_SIZE && id <= 2 * t->used + SLACK) {
    vgx_name name = vgx_name_make(kind, id);
    if (!vgx_place(s, name))
      atomic_store_explicit(&t->leaves[id / VGX_LEAF_SIZE], calloc(1, sizeof(struct vgx_leaf)), memory_order_release);
    _Atomic(void *) *place = vgx_place(s, name);
    if (!place) {
      atomic_store(&t->lacks_ids, true);
      reserved = VGX_NO_MEMORY;
    } else if (!atomic_load_explicit(place, memory_order_relaxed)) {
      bool fits = vgx_quota_reserve_locked(s, quota, 1);
      atomic_store_explicit(place, fits ? &vgx_place_reserved : &vgx_place_destroyed, memory_order_relaxed);
      t->used++;
      t->greatest = id > t->greatest ? id : t->greatest;
      reserved = fits ? VGX_RESERVED : VGX_OVER_QUOTA;
    }
  }
  pthread_mutex_unlock(&s->table_lock);
  if (reserved == VGX_OVER_QUOTA)
    vgx_quota_tell(s, quota);
  return reserved;
}

void vgx_own_locked(struct vgx_session *s, vgx_name name, vgx_name owner) {
  struct vgx_link *link = vgx_link_locked(s, name), *above = vgx_link_locked(s, owner);
  link->owner = owner;
  link->previous = 0;
  link->next = above->first;
  if (above->first)
    vgx_link_locked(s, above->first)->previous = name;
  above->first = name;
}

void vgx_handle_set(struct vgx_session *s, enum vgw_kind kind, uint32_t id, void *object, enum vgw_kind owner_kind,
                    uint32_t owner_id) {
  vgx_name name = vgx_name_make(kind, id);
  pthread_mutex_lock(&s->table_lock);
  _Atomic(void *) *place = vgx_place(s, name);
  if (place && atomic_load_explicit(place, memory_order_relaxed) == &vgx_place_reserved) {
    if (object) {
      vgx_link_locked(s, name)->context = vgx_executing->context;
      if (owner_id)
        vgx_own_locked(s, name, vgx_name_make(owner_kind, owner_id));
    } else {
      vgx_quota_release_locked(s, vgx_quota_of_kind[kind], 1);
    }
    atomic_store_explicit(place, object ? object : &vgx_place_destroyed, memory_order_release);
  }
  pthread_mutex_unlock(&s->table_lock);
}

/* --- queries --- */

CUresult vgx_handle_ids(struct vgx_session *s, enum vgw_kind kind, uint32_t graph_id, void *const *objects,
                        size_t count, uint32_t *ids) {
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&s->table_lock);
  vgx_name first = graph_id ? vgx_link_locked(s, vgx_name_make(VGW_KIND_GRAPH, graph_id))->first : 0;
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
    ids[i] = 0;
    for (vgx_name name = first; name && !ids[i]; name = vgx_link_locked(s, name)->next)
      if (vgx_name_kind(name) == kind && atomic_load(vgx_place(s, name)) == objects[i])
        ids[i] = vgx_name_id(name);
    for (uint32_t id = 1; !graph_id && id <= s->tables[kind].greatest && !ids[i]; id++) {
      _Atomic(void *) *place = vgx_place(s, vgx_name_make(kind, id));
      if (place && atomic_load(place) == objects[i])
        ids[i] = id;
    }
    result = ids[i] ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  pthread_mutex_unlock(&s->table_lock);
  return result;
}

void vgx_handle_set_image_locked(struct vgx_session *s, enum vgw_kind kind, uint32_t id, uint64_t nbytes) {
  vgx_link_locked(s, vgx_name_make(kind, id))->image_nbytes = nbytes;
}

void *vgx_handle_live_locked(struct vgx_session *s, enum vgw_kind kind, uint32_t id) {
  _Atomic(void *) *place = vgx_place(s, vgx_name_of(kind, id));
  void *found = place ? atomic_load(place) : NULL;
  return is_object(found) ? found : NULL;
}

void vgx_handle_set_split(struct vgx_session *s, enum vgw_kind kind, uint32_t id) {
  pthread_mutex_lock(&s->table_lock);
  vgx_link_locked(s, vgx_name_make(kind, id))->split = true;
  atomic_store(&s->has_split, true);
  pthread_mutex_unlock(&s->table_lock);
}

bool vgx_handle_is_split(struct vgx_session *s, enum vgw_kind kind, uint32_t id) {
  if (!atomic_load_explicit(&s->has_split, memory_order_relaxed) || id >= VGX_LEAF_SIZE * VGX_LEAVES)
    return false;
  pthread_mutex_lock(&s->table_lock);
  vgx_name name = vgx_name_make(kind, id);
  bool split = vgx_place(s, name) && vgx_link_locked(s, name)->split;
  pthread_mutex_unlock(&s->table_lock);
  return split;
}

void vgx_handles_free(struct vgx_session *s) {
  for (int kind = 0; kind < VGW_KIND_COUNT; kind++)
    for (uint32_t i = 0; i < VGX_LEAVES; i++) {
      free(atomic_load(&s->tables[kind].leaves[i]));
      atomic_store(&s->tables[kind].leaves[i], NULL);
    }
  free(s->sampled);
  free(s->conditions);
  free(s->resources);
}
