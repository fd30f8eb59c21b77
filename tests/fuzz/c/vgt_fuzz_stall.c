/* Threads stop at random blocks, for as long as a busy machine might not run them: see vgt_fuzz_stall.h. */
#include "vgt_fuzz_stall.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SHORTEST = 5, SHORT_KINDS = 9, ONE_LONG_IN = 100, LONG_MS = 2500 }; /* 2^5 us to 2^13 us */

uint32_t vgt_stall_one_in;

void vgt_stall_init(void) {
  const char *wanted = getenv("VGT_STALL");
  vgt_stall_one_in = wanted ? (uint32_t)strtoul(wanted, NULL, 10) : 0;
}

__attribute__((no_sanitize_thread)) void vgt_stall_maybe(void) {
  static _Thread_local uint64_t state;
  if (!state)
    state = ((uint64_t)syscall(SYS_gettid) ^ vgt_stall_one_in) * 0x9e3779b97f4a7c15ull | 1;
  state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
  uint32_t chance = (uint32_t)(state * 0x2545f4914f6cdd1dull >> 32);
  if (chance % vgt_stall_one_in)
    return;
  chance /= vgt_stall_one_in;
  long us = chance % ONE_LONG_IN ? 1l << (SHORTEST + chance / ONE_LONG_IN % SHORT_KINDS) : LONG_MS * 1000l;
  syscall(SYS_nanosleep, &(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}
