/* A recording's pipe that nobody reads: calls go on, the log says so once, and what was written before is whole. */
#define _GNU_SOURCE
#include <assert.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vgx_recording.h"
#include "vgx_session.h"

static int lines;

void vgx_log(struct vgx_session *s, int level, const char *format, ...) {
  (void)s;
  assert(level == 4 && strstr(format, "not read"));
  lines++;
}

static uint64_t record(struct vgx_session *s, uint8_t *body, size_t nbytes) {
  struct vgw_header header = {.length = (uint32_t)(sizeof header + nbytes), .opcode = 1};
  struct vgw_cursor in = {.cur = body, .end = body + nbytes};
  return vgx_recording_call(s, &header, &in);
}

int main(void) {
  static struct vgx_session session;
  static uint8_t body[1 << 16];
  int ends[2];
  assert(pipe(ends) == 0 && fcntl(ends[1], F_SETPIPE_SZ, 1 << 16) >= 0);
  vgx_recording_set(ends[1], 1 << 30);
  assert(record(&session, body, 64) == 1 && lines == 0);
  assert(record(&session, body, sizeof body) == 2 && lines == 1); /* does not fit */
  assert(record(&session, body, 64) == 3 && lines == 1);
  close(ends[1]);
  struct vgx_recorded_entry entry;
  assert(read(ends[0], &entry, sizeof entry) == sizeof entry && entry.call == 1);
  assert(entry.nbytes == sizeof(struct vgw_header) + 64);
  return 0;
}
