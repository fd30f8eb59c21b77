/* Measures the error of translating a worker's clock to the profiler's, on a simulated network with simulated time.
 *
 * `vgt_cupti_clock UP_US DOWN_US JITTER_US PPM` prints the largest error of a translated time in ns, the largest error
 * after the last measurement, and whether order was kept. The library calls fake_clock_gettime as clock_gettime. */
#define _GNU_SOURCE
#include "vgs_cupti_buffer.h"
#include "vgs_cupti_clock.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MEASUREMENTS = 8, TIMES = 100 };

static uint64_t now_ns = 5000000000, up_ns, down_ns, jitter_ns; /* now_ns: simulated monotonic clock */
static double ppm;
static uint32_t state = 1;

int fake_clock_gettime(clockid_t clock, struct timespec *t) {
  uint64_t time = clock == CLOCK_REALTIME ? now_ns + 1700000000000000000u : now_ns;
  t->tv_sec = (time_t)(time / 1000000000u);
  t->tv_nsec = (long)(time % 1000000000u);
  now_ns += 50;
  return 0;
}

static uint64_t of_worker(uint64_t time) { return 77000000000000u + time + (uint64_t)((double)time * ppm * 1e-6); }

static void pass(uint64_t ns) {
  state = state * 1664525u + 1013904223u;
  now_ns += ns + (jitter_ns ? (state >> 8) % jitter_ns : 0);
}

static CUresult read_clock(uint64_t *now, uint64_t *dropped, uint64_t *waiting) {
  pass(up_ns);
  *now = of_worker(now_ns);
  *dropped = *waiting = 0;
  pass(down_ns);
  return CUDA_SUCCESS;
}

int vgs_cuptiGetTimestamp(uint64_t *timestamp);
void vgs_cupti_count_dropped(uint64_t count) { (void)count; }

/* The largest error of translated times in an interval; *ordered becomes 0 if they are out of order. */
static uint64_t largest_error(uint64_t from, uint64_t to, int *ordered) {
  uint64_t largest = 0, before = 0;
  for (uint64_t i = 0; i <= TIMES; i++) {
    uint64_t time = from + (to - from) * i / TIMES, found = vgs_cupti_time_of_worker(of_worker(time));
    uint64_t right = time + 1700000000000000000u, error = found > right ? found - right : right - found;
    *ordered &= found >= before;
    before = found;
    largest = error > largest ? error : largest;
  }
  return largest;
}

int main(int count, char **given) {
  if (count != 5)
    return 2;
  up_ns = strtoull(given[1], NULL, 10) * 1000;
  down_ns = strtoull(given[2], NULL, 10) * 1000;
  jitter_ns = strtoull(given[3], NULL, 10) * 1000;
  ppm = strtod(given[4], NULL);
  const struct vgs_profiling driver = {.clock = read_clock};
  int ordered = 1;
  uint64_t largest = 0, last = now_ns;
  vgs_cupti_clock_start();
  for (int i = 0; i < MEASUREMENTS; i++) {
    uint64_t began = now_ns;
    now_ns += i ? 10000000000u : 20000000u; /* records over 10 s, the first ones over 20 ms */
    vgs_cupti_clock_measure(&driver);
    uint64_t error = largest_error(began, now_ns, &ordered);
    largest = error > largest ? error : largest;
    last = now_ns;
  }
  uint64_t later = largest_error(last, last + 1000000000u, &ordered);
  printf("%" PRIu64 " %" PRIu64 " %d\n", largest, later, ordered);
  return 0;
}
