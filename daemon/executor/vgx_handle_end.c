/* Destroying objects: who owns them, and the wait for threads that use them. */
#include <time.h>

#include "vgw_clock.h"
#include "vgx_gate.h"
#include "vgx_quota.h"
#include "vgx_session.h"

#define END_TIMEOUT_S 10
#define NAP_NS 20000
#define NAP_NS_MAX 1000000

static void disown_locked(struct vgx_session *s, vgx_name name) {
  struct vgx_link *link = vgx_link_locked(s, name);
  if (link->next)
    vgx_link_locked(s, link->next)->previous = link->previous;
  if (link->previous)
    vgx_link_locked(s, link->previous)->next = link->next;
  else if (link->owner)
    vgx_link_locked(s, link->owner)->first = link->next;
  link->owner = link->next = link->previous = 0;
}

/* The next of the objects that are destroyed with `root`, owners before what they own; 0: none. */
static vgx_name next_locked(struct vgx_session *s, vgx_name root, vgx_name name) {
  struct vgx_link *link = vgx_link_locked(s, name);
  if (link->first)
    return link->first;
  while (name != root && !link->next) {
    name = link->owner;
    link = vgx_link_locked(s, name);
  }
  return name == root ? 0 : link->next;
}

/* A library owns its modules; a module in a context is also destroyed with that context. */
static void own_modules_locked(struct vgx_session *s, vgx_name context) {
  for (uint32_t id = 1; id <= s->tables[VGW_KIND_MODULE].greatest; id++) {
    vgx_name name = vgx_name_make(VGW_KIND_MODULE, id);
    if (!vgx_place(s, name))
      continue;
    struct vgx_link *link = vgx_link_locked(s, name);
    if (link->context == vgx_name_id(context) && vgx_name_kind(link->owner) == VGW_KIND_LIBRARY) {
      disown_locked(s, name);
      vgx_own_locked(s, name, context);
    }
  }
}

/* Clear an object's table entry. False: another thread is destroying it. */
static bool mark_locked(struct vgx_session *s, vgx_name root, vgx_name name) {
  _Atomic(void *) *place = vgx_place(s, name);
  struct vgx_link *link = vgx_link_locked(s, name);
  void *object = atomic_load_explicit(place, memory_order_relaxed);
  if (object == &vgx_place_ending)
    return link->ender == root;
  if (object && object != &vgx_place_destroyed && object != &vgx_place_reserved) {
    link->object = object;
    link->ender = root;
    atomic_store(place, &vgx_place_ending);
  }
  return true;
}

/* Whether no other thread's slot names an object that is destroyed with `root`. This thread's slots name at most its
 * context. */
static bool is_unused_locked(struct vgx_session *s, vgx_name root) {
  atomic_thread_fence(memory_order_seq_cst); /* pairs with vgx_record_ref's, between writing slots and looking up */
  for (struct executor_thread *t = s->threads; t; t = t->next)
    for (uint32_t i = 0; t != vgx_executing && i < VGX_SLOTS; i++) {
      vgx_name name = atomic_load_explicit(&t->held.slots[i], memory_order_acquire);
      if (name == VGX_EVERYTHING || (name && vgx_place(s, name) && vgx_link_locked(s, name)->ender == root))
        return false;
    }
  return true;
}

/* One step of a destruction: true when nobody uses the object nor what it owns. The object comes first: once nobody
 * uses it, nothing is added to what it owns. */
static bool take_locked(struct vgx_session *s, vgx_name root) {
  if (!is_unused_locked(s, root))
    return false;
  if (vgx_name_kind(root) == VGW_KIND_CONTEXT)
    own_modules_locked(s, root);
  bool all = true;
  for (vgx_name name = next_locked(s, root, root); name; name = next_locked(s, root, name))
    all &= mark_locked(s, root, name);
  return all && is_unused_locked(s, root);
}

static CUresult begin_locked(struct vgx_session *s, vgx_name root, bool *unknown) {
  enum vgw_kind kind = vgx_name_kind(root);
  _Atomic(void *) *place = vgx_place(s, root);
  void *object = place ? atomic_load_explicit(place, memory_order_relaxed) : NULL;
  *unknown = !object && !atomic_load(&s->tables[kind].lacks_ids);
  if (!object || object == &vgx_place_destroyed || object == &vgx_place_reserved || object == &vgx_place_ending)
    return kind == VGW_KIND_CONTEXT ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
  vgx_name owner = vgx_link_locked(s, root)->owner;
  if (owner && vgx_name_kind(owner) != VGW_KIND_CONTEXT && kind != VGW_KIND_GRAPH_NODE)
    return kind == VGW_KIND_GRAPH ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
  mark_locked(s, root, root);
  return CUDA_SUCCESS;
}

CUresult vgx_handle_end(struct vgx_session *s, enum vgw_kind kind, uint32_t id, void **object) {
  if (id == 0)
    return CUDA_ERROR_INVALID_HANDLE;
  vgx_name root = vgx_name_of(kind, id);
  uint64_t until = 0;
  bool unknown = false;
  pthread_mutex_lock(&s->table_lock);
  CUresult result = begin_locked(s, root, &unknown);
  if (result == CUDA_SUCCESS)
    *object = vgx_link_locked(s, root)->object;
  for (int64_t nap = NAP_NS; result == CUDA_SUCCESS && !take_locked(s, root); nap += nap < NAP_NS_MAX ? nap : 0) {
    pthread_mutex_unlock(&s->table_lock);
    until = until ? until : vgw_now_ns() + END_TIMEOUT_S * 1000000000ull;
    if ((vgw_now_ns() > until && !(vgx_executing->flags & VGX_BLOCKS)) || atomic_load(&s->ended))
      result = CUDA_ERROR_ILLEGAL_STATE;
    else
      nanosleep(&(struct timespec){0, nap}, NULL);
    pthread_mutex_lock(&s->table_lock);
  }
  pthread_mutex_unlock(&s->table_lock);
  if (unknown)
    return vgx_violation(s, "a handle that was never made");
  if (result == CUDA_ERROR_ILLEGAL_STATE)
    vgx_handle_ended(s, kind, id, false);
  if (result == CUDA_SUCCESS && kind == VGW_KIND_CONTEXT)
    vgx_gate_clear();
  return result;
}

static void restore_locked(struct vgx_session *s, vgx_name root) {
  for (vgx_name name = root; name; name = next_locked(s, root, name)) {
    struct vgx_link *link = vgx_link_locked(s, name);
    if (link->ender != root)
      continue;
    link->ender = 0;
    atomic_store_explicit(vgx_place(s, name), link->object, memory_order_release);
  }
}

/* The deepest first, so that each has nothing below it. */
static void drop_locked(struct vgx_session *s, vgx_name root) {
  for (bool done = false; !done;) {
    vgx_name name = root;
    for (vgx_name below; (below = vgx_link_locked(s, name)->first);)
      name = below;
    done = name == root;
    disown_locked(s, name);
    struct vgx_link *link = vgx_link_locked(s, name);
    link->ender = 0;
    _Atomic(void *) *place = vgx_place(s, name);
    if (atomic_load_explicit(place, memory_order_relaxed) == &vgx_place_ending) {
      atomic_store_explicit(place, &vgx_place_destroyed, memory_order_release);
      vgx_quota_release_locked(s, vgx_quota_of_kind[vgx_name_kind(name)], 1);
      vgx_quota_release_locked(s, VGW_QUOTA_IMAGE_NBYTES, link->image_nbytes);
      link->image_nbytes = 0;
    }
  }
}

void vgx_handle_ended(struct vgx_session *s, enum vgw_kind kind, uint32_t id, bool done) {
  pthread_mutex_lock(&s->table_lock);
  if (done)
    drop_locked(s, vgx_name_make(kind, id));
  else
    restore_locked(s, vgx_name_make(kind, id));
  pthread_mutex_unlock(&s->table_lock);
}
