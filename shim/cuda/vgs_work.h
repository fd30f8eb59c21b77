/* Work of graphs that this process does at each launch: the program's host functions, and copies of memory that the
 * worker does not reach. Such a copy is an internal host function, which moves bytes between the program's memory and
 * memory that the worker reaches, before or after the device's own copy: so it happens at its place in the graph, at
 * every launch.
 *
 * Graphs and executable graphs hold references to the work that may still be due; the last reference frees it. */
#ifndef VGS_WORK_H
#define VGS_WORK_H

#include "vgw_cuda.h"
#include <stdbool.h>
#include <stdint.h>

/* Embedded first in the struct of its kind, which is malloc'ed. */
struct vgs_work {
  uint32_t id, refs;
  bool pageable;                   /* whether it copies pageable memory */
  void (*run)(struct vgs_work *);  /* called at each launch; NULL: a user object */
  void (*fini)(struct vgs_work *); /* NULL: it owns nothing */
};

/* Give work its id, with `marks` (VGW_CALLBACK_*), and the caller's references. False: out of memory. */
bool vgs_work_init(struct vgs_work *work, uint32_t refs, uint32_t marks);

/* The work that a graph references, which may be more than can still be due. `node`: id of the node whose work it is,
 * or of the node of the child graph that contains it; 0: no known node. */
struct vgs_works {
  struct vgs_kept {
    struct vgs_work *work;
    uint32_t node;
    uint32_t refs; /* how many of the work's references belong to this entry */
  } *items;
  uint32_t count, capacity;
  uint32_t pageable; /* how many of them copy pageable memory */
};

/* Work that the caller keeps until it is released; NULL: out of memory. */
struct vgs_work *vgs_work_function(CUhostFn function, void *user_data);
void vgs_work_unref(struct vgs_work *work);
#define VGS_WORK __attribute__((cleanup(vgs_work_unref_held))) struct vgs_work
static inline void vgs_work_unref_held(struct vgs_work **work) {
  if (*work)
    vgs_work_unref(*work);
}
struct vgs_work *vgs_work_find(uint32_t callback); /* with a reference for the caller; NULL: none */
uint32_t vgs_work_id(const struct vgs_work *work); /* the id of its callback on the wire */

/* A user object: work that never comes due. `destroy` is called with `user_data` when the program and all graphs have
 * dropped their references, by the thread that drops the last one; the program begins with `refs` of them. */
struct vgs_work *vgs_work_user_object(CUhostFn destroy, void *user_data, uint32_t refs);
/* Find a user object and add a reference, which the caller releases; NULL: no user object has this id. */
struct vgs_work *vgs_work_find_user_object(uint32_t id);
/* Add or drop `refs` references. False: too many, or more than exist; nothing has changed. */
bool vgs_work_ref_program(struct vgs_work *work, uint32_t refs);
bool vgs_work_unref_program(struct vgs_work *work, uint32_t refs);
bool vgs_works_add_user_object(struct vgs_works *works, struct vgs_work *work, uint32_t refs);
bool vgs_works_remove_user_object(struct vgs_works *works, struct vgs_work *work, uint32_t refs);

/* Keep one more work (add), all works of another graph (add_all), or all of those for a child graph's node (add_child).
 * Works kept for `node` move to `old`. False: out of memory, and nothing has changed. */
bool vgs_works_add(struct vgs_works *works, struct vgs_work *work, uint32_t node, struct vgs_works *old);
bool vgs_works_add_all(struct vgs_works *works, const struct vgs_works *others);
bool vgs_works_add_child(struct vgs_works *works, const struct vgs_works *others, uint32_t node, struct vgs_works *old);
/* Release the works kept for `node`; those of `other` are kept for it instead. */
void vgs_works_replace(struct vgs_works *works, uint32_t node, uint32_t other);
void vgs_works_clear(struct vgs_works *works);
#define VGS_WORKS __attribute__((cleanup(vgs_works_clear))) struct vgs_works

/* Run the work of a callback that is due. */
void vgs_work_run(uint32_t callback);

/* The function and argument of a callback. False: it is not a host function of the program. */
bool vgs_work_params(uint32_t callback, CUDA_HOST_NODE_PARAMS *params);

#endif
