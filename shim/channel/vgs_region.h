/* The session's share of memory that this virtual machine and its host have in common (vgw_region.h): in a guest, the
 * BAR of an ivshmem device. Rings and pinned memory are taken from it where the channel passes no descriptors.
 *
 * One session at a time. The caller serialises opening and closing; mapping and unmapping are thread-safe. */
#ifndef VGS_REGION_H
#define VGS_REGION_H

#include <stdbool.h>
#include <stdint.h>

/* Open the candidates: `configured` (a path; "off"; "": every ivshmem device). False: none was found; the log says why.
 */
bool vgs_region_look(const char *configured);

/* Keep the candidate that begins with this cookie, and close the others. False: none does. */
bool vgs_region_recognise(const uint8_t cookie[16], uint64_t nbytes);

/* Map the session's range. False: it cannot be mapped; calls travel on the socket. */
bool vgs_region_map(uint64_t offset, uint64_t nbytes);

/* Whether a range is mapped. */
bool vgs_region_mapped(void);

/* Memory for a ring, its first page zero, at *offset in the range. NULL: none is left. It is never freed. */
void *vgs_region_reserve_ring(uint64_t nbytes, uint64_t *offset);

/* Map fresh memory of the range at `address`, where nothing may be mapped; `offset` within the range. 0 or -errno. */
int vgs_region_map_pinned(uint64_t address, uint64_t nbytes, uint64_t *offset);

/* Whether the library may take a piece of this size for itself: it must fit, and be at most a third of the space for
 * pinned memory, which the program needs, too. */
bool vgs_region_can_spare(uint64_t nbytes);

/* Release a range of vgs_region_map_pinned; the caller unmaps it. Unknown addresses are ignored. */
void vgs_region_free_pinned(uint64_t address);

/* The session is lost, and the host may lend its range to another session. The program's addresses stay valid: private
 * memory replaces the region's. */
void vgs_region_detach(void);

/* Unmap the range, forget the device. */
void vgs_region_end(void);

/* In a forked child: the range is the parent's. */
void vgs_region_abandon(void);

#endif
