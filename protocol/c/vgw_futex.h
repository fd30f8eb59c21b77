/* Sleeping on a shared word. Not the private kind: the other side is another process. */
#ifndef VGW_FUTEX_H
#define VGW_FUTEX_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sleep while the word holds `value`, at most `timeout_ms`. 0 or -errno (-EAGAIN: it holds another value already). */
static inline int vgw_futex_wait(_Atomic uint32_t *word, uint32_t value, int timeout_ms) {
  struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
  return syscall(SYS_futex, word, FUTEX_WAIT, value, &timeout, NULL, 0) ? -errno : 0;
}

static inline void vgw_futex_wake(_Atomic uint32_t *word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

#endif
