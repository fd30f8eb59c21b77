#ifndef VGT_FUZZ_CHANNEL_H
#define VGT_FUZZ_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vgw_wire.h"

enum { VGT_WORDS_MAX = 128 };

/* Send bytes, and a descriptor unless `passed` is negative. The first waits for room; the second fails without any. */
bool vgt_send_with(int fd, const void *record, size_t nbytes, int passed);
bool vgt_send_now(int fd, const void *record, size_t nbytes, int passed);

/* Send a record; with a descriptor of a client's file, if the record's flags have VGW_HAS_FD. */
void vgt_send_file(int fd, const uint8_t *bytes, uint32_t nbytes);

/* Send a record of the harness, of which `words` are the fields. */
void vgt_send_words(int fd, uint16_t opcode, const uint64_t *words, uint32_t count);

/* Read a reply; `value`: its first eight bytes, or zero. False: the session is over, or the result is an error. */
bool vgt_reply(int fd, uint64_t *value);

/* Whether the worker has closed its end. Discards what it has sent. */
bool vgt_is_over(int fd);

/* Open a ring in a file of its own, or in the memory that the client's machine shares with the host. */
struct vgw_ring *vgt_ring_open(int fd, uint32_t number);
struct vgw_ring *vgt_ring_open_at(int fd, uint32_t number, int region_fd);

/* The worker sleeps on a word of its own for a ring in a region. Every eighth call asks: what is lost is found later.
 */
void vgt_ring_wake(int fd, uint32_t number, uint32_t turn);

/* An input is smaller than a ring, so the ring never becomes full and never wraps around. */
void vgt_ring_push(struct vgw_ring *ring, uint64_t *tail, const uint8_t *bytes, uint32_t nbytes);

/* For VGT_LOG: print the opcode at which each ring stopped. */
void vgt_rings_tell(struct vgw_ring *const *rings, const uint64_t *tails);

#endif
