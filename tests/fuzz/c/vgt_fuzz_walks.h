#ifndef VGT_FUZZ_WALKS_H
#define VGT_FUZZ_WALKS_H

#include <stdbool.h>
#include <stdint.h>

#include "vgw_wire.h"

/* Sessions that a search finds rarely or never, as they need calls in one order, or a wrong record of one kind. A
 * process serves those that fit it before its search, so that each run executes their lines. Numbered from 1. */
uint32_t vgt_walk_count(void);
/* Whether a process of this kind serves it (enum vgt_process). */
bool vgt_walk_fits(uint32_t walk, unsigned process);
/* What vgpud decides for its session: stands for the length of an input (vgt_fuzz_host.h). */
uint32_t vgt_walk_choice(uint32_t walk);
/* Before its session; once the session and its rings are open; and what the first ring gets. */
void vgt_walk_begin(uint32_t walk);
void vgt_walk(int fd, uint32_t walk);
void vgt_walk_rings(uint32_t walk, struct vgw_ring *ring, uint64_t *tail);
/* After the session. */
void vgt_walk_end(void);

/* Walks of a session whose memory is limited as on a card (vgt_fuzz_walks_limited.c). */
void vgt_walk_refused(int fd);
void vgt_walk_unaccounted(int fd);
void vgt_walk_full(int fd);
void vgt_walk_pools(int fd);
void vgt_walk_recorded(int fd);
void vgt_walk_unrecorded(int fd);
/* Record the next session, to a new file. */
void vgt_walk_record(uint64_t limit_nbytes);

#endif
