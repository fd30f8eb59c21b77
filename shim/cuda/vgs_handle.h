/* Handles and the client's objects behind them.
 *
 * A handle is the value kind << 48 | epoch << 32 | id: never a valid address, so a wrong one is recognised without
 * touching it. Objects are found by id through a three-level table without a lock. Their memory and the table's leaves
 * are reused for the same purpose only and never returned before the end, so a thread that races with a destroy reads
 * an object of the right type whose id no longer fits. Ids are not reused within a session. */
#ifndef VGS_HANDLE_H
#define VGS_HANDLE_H

#include "vgw_records.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vgs_object {
  uint32_t id;                        /* 0: free */
  uint16_t kind;                      /* enum vgw_kind */
  uint16_t epoch;                     /* of the session it was made in */
  uint32_t context_id;                /* wire id of the context it dies with; 0: none */
  struct vgs_object *next, *previous; /* live objects of the kind, or the free list */
};

/* What objects of one kind look like. `fini` frees what an object owns. */
struct vgs_object_type {
  size_t nbytes;
  void (*fini)(void *object);
};

/* Set the types of all kinds, indexed by kind. Called once, before the first object; the array must stay valid. */
void vgs_object_set_types(const struct vgs_object_type types[VGW_KIND_COUNT]);

/* A new object, zeroed behind its header, with the next id of its kind. NULL: out of memory or ids. */
void *vgs_object_create(enum vgw_kind kind, uint32_t context_id);

/* Reserve an id of the kind without an object, for an object that gets a new id under the same handle. 0: none left. */
uint32_t vgs_object_reserve_id(enum vgw_kind kind);

/* The live object behind a handle, or NULL for anything else. */
void *vgs_object_find(enum vgw_kind kind, const void *handle);

/* Free the object. Its handle is invalid from now on. */
void vgs_object_destroy(void *object);

/* Free all objects of all kinds that belong to a context. */
void vgs_object_destroy_context(uint32_t context_id);

/* Free all objects but contexts, which the program may still have on a thread's stack. */
void vgs_object_destroy_all(void);

/* Free all memory. Only from the library's destructor. */
void vgs_object_fini(void);

static inline void *vgs_object_handle(const void *object) {
  const struct vgs_object *header = object;
  return (void *)(uintptr_t)((uint64_t)header->kind << 48 | (uint64_t)header->epoch << 32 | header->id);
}

/* The live object with this id, or NULL. */
void *vgs_object_at(enum vgw_kind kind, uint32_t id);

/* The ids of an array of handles, malloc'ed. Returns `wrong` when one is not a handle of the kind. */
CUresult vgs_handle_ids(enum vgw_kind kind, const void *const *handles, size_t count, CUresult wrong, uint32_t **ids);

/* Frees an array that a generated function made when its variable goes out of scope. */
#define VGS_FREED __attribute__((cleanup(vgs_free_array)))
void vgs_free_array(void *array);

#endif
