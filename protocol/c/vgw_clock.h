/* Reading the kernel's clocks. Times are nanoseconds in 64 bits, which last for 584 years. */
#ifndef VGW_CLOCK_H
#define VGW_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t vgw_clock_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The monotonic clock: never set, the same in every process of a machine. */
static inline uint64_t vgw_now_ns(void) { return vgw_clock_ns(CLOCK_MONOTONIC); }

/* The monotonic time `seconds` from now, as pthread_cond_clockwait expects it. */
static inline struct timespec vgw_deadline(unsigned seconds) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  t.tv_sec += (time_t)seconds;
  return t;
}

#endif
