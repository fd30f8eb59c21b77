/* Pinned memory of the client, and what a copy may touch. */
#ifndef VGX_MEMORY_H
#define VGX_MEMORY_H

#include "vgx_session.h"

/* Map `nbytes` at `offset` of this session's share of the region; both values come from the client. `address` NULL:
 * anywhere, else exactly there. MAP_FAILED: errno says why; EINVAL: they are outside the share. */
void *vgx_region_map(struct vgx_session *s, void *address, uint64_t offset, uint64_t nbytes);

/* Whether [address, address + nbytes) lies in one pinned region of this session. */
bool vgx_is_pinned(struct vgx_session *s, uint64_t address, uint64_t nbytes);
bool vgx_is_pinned_locked(const struct vgx_session *s, uint64_t address, uint64_t nbytes); /* with table_lock held */

/* The mapping in which the range lies, or NULL; with table_lock held. */
struct vgx_mapping *vgx_mapping_of_locked(const struct vgx_session *s, uint64_t address, uint64_t nbytes);

/* Copy pinned memory at `address` to `to`, or `from` to that memory; one of the two pointers is NULL. False: the range
 * is not pinned. */
bool vgx_move_pinned(struct vgx_session *s, uint64_t address, void *to, const void *from, uint64_t nbytes);

/* Whether whole pages lie in the window where clients place pinned memory. */
bool vgx_in_window(uint64_t address, uint64_t nbytes);

/* Register memory of this process with the driver, for copies and, where the driver can, for kernels: a driver that is
 * vgpu's own library (tests/relayed) maps no file of another process for its device. */
CUresult vgx_register(struct vgx_session *s, void *at, uint64_t nbytes);

/* Register the mapping at `at`, so that the device reaches it and copies may name it; on failure it is unmapped.
 * MAP_FAILED: nothing was mapped, and errno says why. */
CUresult vgx_add_mapping(struct vgx_session *s, void *at, uint64_t nbytes, uint64_t region_offset);
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

/* Memory of a graph's own, which NVIDIA's driver does not know as device memory before a launch has allocated it
 * (580.159.04, seen on an H200). A range is reserved before its node is made, as such a node cannot be removed from its
 * graph. It stays until the session's end: executable graphs may outlive the graph. */
struct vgx_graph_range {
  uint64_t address, nbytes; /* address 0: reserved */
};
/* OUT_OF_MEMORY: the session has too many of them. */
CUresult vgx_graph_range_reserve(struct vgx_session *s, uint64_t nbytes);
/* Set the address of a reserved range; 0: its node was not made. */
void vgx_graph_range_set(struct vgx_session *s, uint64_t address, uint64_t nbytes);

/* Whether a copy may touch these bytes: they are pinned, or a graph's own, or the driver knows their address as device
 * memory. */
bool vgx_is_reachable(struct vgx_session *s, uint64_t address, uint64_t nbytes);

/* Whether a box is reachable: rows of `width` bytes, `pitch` apart, `rows` of them to a slice. An empty box is. */
bool vgx_box_is_reachable(struct vgx_session *s, uint64_t address, uint64_t pitch, uint64_t rows, uint64_t width,
                          uint64_t height, uint64_t depth);

/* Whether rows that travel packed are `nbytes` and no more than a record holds. */
bool vgx_rows_fill(uint64_t width, uint64_t height, uint64_t nbytes);

#endif
