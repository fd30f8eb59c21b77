/* The recording of a session, for `vgpu replay`: what the worker receives and answers, in the order in which it begins
 * and ends each call. Off unless the operator has asked for it (vgpud.toml, [recording]). */
#ifndef VGX_RECORDING_H
#define VGX_RECORDING_H

#include <stdbool.h>
#include <stdint.h>

#include "vgw_wire.h"

#ifndef VGX_RECORDING_TIMEOUT_MS
#define VGX_RECORDING_TIMEOUT_MS 5000
#endif

struct vgx_reply;
struct vgx_session;

enum vgx_recorded {
  VGX_RECORDED_CALL = 1,   /* the record as it came */
  VGX_RECORDED_ANSWER = 2, /* the reply; of a queued call its header alone */
  VGX_RECORDED_FULL = 3,   /* the limit is reached: nothing follows */
};

/* Precedes each entry, whose bytes are padded to a multiple of 8. */
struct vgx_recorded_entry {
  uint32_t kind, nbytes; /* enum vgx_recorded; without this header and padding */
  uint64_t call;         /* numbers calls from 1; an answer has its call's */
};

/* Whether this process records. Set before vgx_serve. */
extern bool vgx_recording_on;

/* Before vgx_serve: record to `fd`, at most about `limit_nbytes`; takes ownership of the descriptor. If
 * that is a pipe which is full and not read for VGX_RECORDING_TIMEOUT_MS, recording stops, and the log says so: the
 * session does not wait for the operator's disk. */
void vgx_recording_set(int fd, uint64_t limit_nbytes);

/* A call begins; returns its number. `in` stands behind the header. */
uint64_t vgx_recording_call(struct vgx_session *s, const struct vgw_header *header, const struct vgw_cursor *in);
void vgx_recording_answer(struct vgx_session *s, uint64_t call, const struct vgw_header *reply,
                          const struct vgx_reply *out);

#endif
