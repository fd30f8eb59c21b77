/* Shared by vgx_handle.c (using objects) and vgx_handle_end.c (destroying them). */
#ifndef VGX_HANDLE_INTERNAL_H
#define VGX_HANDLE_INTERNAL_H

#include "vgx_session.h"

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
