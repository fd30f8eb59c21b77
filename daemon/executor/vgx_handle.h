/* Handles: the client's ids, the backend's objects behind them, and how long those live.
 *
 * The client chooses ids and never reuses them, so a destroyed one stays invalid. Looking one up takes no lock: every
 * launch does so three times, on as many threads as there are rings.
 *
 * References. A thread that executes a record holds what the record names until the backend has returned: it writes the
 * names into slots of its own, fences once, and looks them up. A thread that destroys an object clears its table entry
 * first, then waits until no thread's slot names it. So whatever rings do with each other, the backend is never given
 * an object that another thread is destroying. A thread that destroys an object holds no slots.
 *
 * Owners. An object that is destroyed with its owner (a context's streams, a module's functions, a graph's nodes) is
 * linked below the owner. Destroying the owner makes its id invalid, too, and waits until no thread uses it. */
#ifndef VGX_HANDLE_H
#define VGX_HANDLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vgw_cuda.h"
#include "vgw_records.h"

struct vgx_session;
struct executor_thread;
struct vgx_operation;

/* A kind and an id in one word; 0: none. */
typedef uint32_t vgx_name;

/* The objects of one kind of handle, by id, in a table of two levels: entries never move, so that lookups need no lock.
 * */
enum { VGX_LEAF_SIZE = 4096, VGX_LEAVES = 1024 };

struct vgx_link {
  vgx_name owner, first, next, previous; /* first owned; neighbours below the same owner */
  vgx_name ender;                        /* the object whose destruction includes this one */
  uint32_t context;                      /* id of the context it was made in */
  uint64_t image_nbytes;                 /* of a module or library: its image, which is counted while it lives */
  bool split;                            /* a graph's copy node, half of which an internal host function does */
  void *object;                          /* while `ender` is set */
};

struct vgx_leaf {
  _Atomic(void *) objects[VGX_LEAF_SIZE];
  struct vgx_link links[VGX_LEAF_SIZE]; /* under table_lock */
};

struct vgx_table {
  _Atomic(struct vgx_leaf *) leaves[VGX_LEAVES]; /* made under table_lock */
  uint32_t used, greatest;                       /* ids; under table_lock */
  atomic_bool lacks_ids;                         /* there was no memory for an id that the client counts as used */
};

/* The objects that a thread holds. Slot 0 is the record's context. Other threads read it. */
enum { VGX_HANDLES_MAX = 5, VGX_SLOTS = 8 };
#define VGX_EVERYTHING UINT32_MAX /* in a slot: a record that names more than there are slots */

struct vgx_held {
  _Atomic vgx_name slots[VGX_SLOTS];
  uint32_t count; /* used by the owning thread alone */
};

/* A handle among a request's fixed fields. */
struct vgx_ref {
  uint16_t kind; /* VGW_KIND_COUNT: a function or kernel, as the field at `kind_offset` says */
  uint16_t offset, kind_offset;
  uint16_t null_result; /* the result for id 0; SUCCESS: 0 is allowed and means no object */
};
#define VGX_REF(kind, type, field, null_result) {kind, offsetof(type, field), 0, null_result}
#define VGX_FUNCTION_REF(type, kind, object)                                                                           \
  {VGW_KIND_COUNT, offsetof(type, object), offsetof(type, kind), CUDA_ERROR_INVALID_HANDLE}

/* Hold and look up what a record names: its context (NULL: the context cannot be entered and none is needed) and the
 * handles in its fixed fields. A destroyed id: INVALID_HANDLE (INVALID_CONTEXT for contexts); an id that was never
 * created: a violation. vgx_record_unref ends the hold, also after a failure. */
CUresult vgx_record_ref(struct executor_thread *t, const struct vgx_operation *op, uint32_t context_id,
                        const void *fixed, void **context, void **objects);
void vgx_record_unref(struct executor_thread *t);

/* Hold and look up another handle of the record that this thread executes. Id 0 gives NULL. */
CUresult vgx_handle(struct vgx_session *s, enum vgw_kind kind, uint32_t id, void **object);

/* Likewise for an array of ids, which are read once: *objects is malloc'ed. Id 0 is INVALID_VALUE; NOT_SUPPORTED: one
 * of the objects is split, and the call would have to name both halves. */
CUresult vgx_handles(struct vgx_session *s, enum vgw_kind kind, const uint32_t *ids, uint32_t count, void ***objects);

/* End the record's hold on one object: the caller has a reference of its own. */
void vgx_record_unref_one(enum vgw_kind kind, uint32_t id);

/* The context of the record that this thread executes. */
uint32_t vgx_context_id(void);

/* A new object: its id is reserved, and counted, before it is made, then set. `owner_id` 0: nobody owns it. */
enum vgx_reserved {
  VGX_RESERVED,
  VGX_TAKEN,      /* no id for a new object */
  VGX_OVER_QUOTA, /* the tenant may have no more of its kind; the id is used up, and the client gets the reason */
  VGX_NO_MEMORY,  /* for the id, which is an invalid handle then */
};
enum vgx_reserved vgx_handle_reserve(struct vgx_session *s, enum vgw_kind kind, uint32_t id);
void vgx_handle_set(struct vgx_session *s, enum vgw_kind kind, uint32_t id, void *object, enum vgw_kind owner_kind,
                    uint32_t owner_id); /* `object` NULL: it was not created */

/* The ids of objects of graph `graph_id`, 0: of any owner. INVALID_VALUE: an object has no id. */
CUresult vgx_handle_ids(struct vgx_session *s, enum vgw_kind kind, uint32_t graph_id, void *const *objects,
                        size_t count, uint32_t *ids);

/* Set the size of the image that a module or library was loaded from; it counts until the object's end. */
void vgx_handle_set_image_locked(struct vgx_session *s, enum vgw_kind kind, uint32_t id, uint64_t nbytes);

/* The object of an id; NULL: none is live. table_lock held. */
void *vgx_handle_live_locked(struct vgx_session *s, enum vgw_kind kind, uint32_t id);

void vgx_handle_set_split(struct vgx_session *s, enum vgw_kind kind, uint32_t id);
/* The id may be any number. */
bool vgx_handle_is_split(struct vgx_session *s, enum vgw_kind kind, uint32_t id);

void vgx_handles_free(struct vgx_session *s);

/* Frees an array of the dispatcher when the variable goes out of scope. */
#define VGX_FREED __attribute__((cleanup(vgx_free_array)))
void vgx_free_array(void *array);

/* --- for vgx_handle_end.c, which destroys objects --- */

/* Values of a table entry without an object. NULL: its id was never used. */
extern char vgx_place_reserved, vgx_place_destroyed, vgx_place_ending;

/* The thread whose record this is; set by vgx_record_ref. */
extern _Thread_local __attribute__((tls_model("initial-exec"))) struct executor_thread *vgx_executing;

#define NAME_ID_BITS 22
_Static_assert(VGX_LEAVES *VGX_LEAF_SIZE == 1 << NAME_ID_BITS, "an id fits a name");
_Static_assert(VGW_KIND_COUNT < 1 << (32 - NAME_ID_BITS), "a kind fits a name");

static inline vgx_name vgx_name_make(uint32_t kind, uint32_t id) { return kind << NAME_ID_BITS | id; }
static inline uint32_t vgx_name_kind(vgx_name name) { return name >> NAME_ID_BITS; }
static inline uint32_t vgx_name_id(vgx_name name) { return name & ((1u << NAME_ID_BITS) - 1); }

/* The name of an id that a client sent. One beyond every table gets a name of kind 0, of which there are no objects. */
static inline vgx_name vgx_name_of(uint32_t kind, uint32_t id) {
  return id < VGX_LEAVES * VGX_LEAF_SIZE ? vgx_name_make(kind, id) : vgx_name_make(0, 1);
}

/* The table entry of a name; NULL when no id near it was ever used. */
_Atomic(void *) *vgx_place(struct vgx_session *s, vgx_name name);

/* The link of a name that has a table entry; table_lock held. */
struct vgx_link *vgx_link_locked(struct vgx_session *s, vgx_name name);

/* Link an object below its owner. */
void vgx_own_locked(struct vgx_session *s, vgx_name name, vgx_name owner);

#endif
