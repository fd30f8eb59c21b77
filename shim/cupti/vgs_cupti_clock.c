/* Relating clocks. A reading of two clocks is a point; between the first point and the last one lies a line, by which
 * times are translated: offset and drift are measured anew whenever the worker's records are read.
 *
 * A point between this process and the worker is the shortest of several round trips: its error is at most half of the
 * trip's time. If the offset is within the error, the two clocks are taken to be one, as they are on one machine. */
#include "vgs_cupti_clock.h"
#include "vgs_cupti_api.h"
#include "vgs_cupti_buffer.h"
#include "vgs_cupti_result.h"
#include "vgw_clock.h"
#include <time.h>

enum { TRIPS = 8, READINGS = 5 };
enum { LINE_NS = 1000000000 }; /* over a shorter time drift cannot be distinguished from the error of a point */

struct point {
  uint64_t from, to;
  uint64_t error; /* of `to` */
};

struct line {
  struct point first, last;
  bool begun;
};

static uint64_t (*callback)(void);        /* atomic */
static struct line to_profiler, to_local; /* from this process's monotonic clock; from the worker's clock */

uint64_t vgs_cupti_now(void) {
  uint64_t (*given)(void) = __atomic_load_n(&callback, __ATOMIC_ACQUIRE);
  return given ? given() : vgw_clock_ns(CLOCK_REALTIME);
}

int vgs_cuptiGetTimestamp(uint64_t *timestamp) {
  if (!timestamp)
    return CUPTI_ERROR_INVALID_PARAMETER;
  *timestamp = vgs_cupti_now();
  return CUPTI_SUCCESS;
}

int vgs_cuptiActivityRegisterTimestampCallback(uint64_t (*funcTimestamp)(void)) {
  if (!funcTimestamp)
    return CUPTI_ERROR_INVALID_PARAMETER;
  __atomic_store_n(&callback, funcTimestamp, __ATOMIC_RELEASE);
  vgs_cupti_clock_start();
  return CUPTI_SUCCESS;
}

static void add(struct line *line, struct point point) {
  if (!line->begun)
    line->first = point;
  line->last = point;
  line->begun = true;
}

/* Translate a time by the line; with slope 1 if its points are less than `least` apart. */
static uint64_t translate(const struct line *line, uint64_t time, uint64_t least) {
  const struct point *a = &line->first, *b = &line->last;
  double slope = b->from > a->from && b->from - a->from >= least
                     ? (double)(int64_t)(b->to - a->to) / (double)(b->from - a->from)
                     : 1.0;
  return b->to + (uint64_t)(int64_t)((double)(int64_t)(time - b->from) * slope);
}

static struct point read_profiler(void) {
  struct point best = {.error = UINT64_MAX};
  for (int i = 0; i < READINGS; i++) {
    uint64_t before = vgw_now_ns(), now = vgs_cupti_now(), after = vgw_now_ns();
    if (after - before < best.error)
      best = (struct point){before + (after - before) / 2, now, after - before};
  }
  return best;
}

void vgs_cupti_clock_start(void) {
  to_profiler.begun = to_local.begun = false;
  add(&to_profiler, read_profiler());
}

/* Count the records that the worker has lost since the last call. `lost`: in all. Under the lock of measurements. */
static void count_lost(uint64_t lost) {
  static uint64_t known;
  vgs_cupti_count_dropped(lost >= known ? lost - known : lost); /* a smaller count is another worker's */
  known = lost;
}

static bool read_worker(const struct vgs_profiling *driver, struct point *best) {
  uint64_t dropped = 0;
  best->error = UINT64_MAX;
  for (int i = 0; i < TRIPS; i++) {
    uint64_t now, waiting, before = vgw_now_ns();
    if (driver->clock(&now, &dropped, &waiting))
      return false;
    uint64_t after = vgw_now_ns(), error = (after - before + 1) / 2;
    if (error < best->error)
      *best = (struct point){now, before + error, error};
  }
  count_lost(dropped);
  if (best->from + best->error >= best->to && best->to + best->error >= best->from)
    best->to = best->from;
  return true;
}

void vgs_cupti_clock_measure(const struct vgs_profiling *driver) {
  struct point point;
  add(&to_profiler, read_profiler());
  if (!driver || !read_worker(driver, &point))
    return;
  bool was_one = to_local.begun && to_local.first.from == to_local.first.to;
  /* Begin a new line: two equal clocks have no drift, and if they were equal before, this is another worker. */
  if (was_one || point.from == point.to)
    to_local.begun = false;
  add(&to_local, point);
}

uint64_t vgs_cupti_time_of_worker(uint64_t worker_ns) {
  return translate(&to_profiler, translate(&to_local, worker_ns, LINE_NS), 0);
}
