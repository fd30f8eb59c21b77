/* A buffer of records of device work: the backend adds them, the client fetches them in batches. At most
 * VGW_ACTIVITIES_MAX wait; further ones are dropped and counted. Beyond NAMES_MAX names, records get no name.
 *
 * The backend adds records only while the client has asked for them (vgpuActivityStart), and only for requests that
 * carry a correlation (VGW_CORRELATED). */
#define _GNU_SOURCE
#include "vgx_activity.h"
#include "vgw_clock.h"
#include "vgx_custom.h"
#include "vgx_session.h"

#include <stdlib.h>

enum { NAMES_MAX = 1 << 16, BUCKETS = 1 << 10, FIRST = 1024 };

struct name {
  struct name *next; /* in its bucket */
  uint32_t id;
  char text[];
};

static struct {
  pthread_mutex_t lock;
  struct vgw_activity *records;
  uint32_t count, capacity;
  uint64_t dropped;
  struct name *buckets[BUCKETS];
  struct name **names; /* by id - 1 */
  uint32_t name_count, name_capacity;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER}; /* of the process's one session */

/* Make space for one more item. False: the limit is reached, or memory is short. */
static bool reserve(void **items, uint32_t count, uint32_t *capacity, uint32_t most, size_t nbytes) {
  if (count < *capacity)
    return true;
  uint32_t wanted = *capacity ? *capacity * 2 : FIRST;
  void *grown = count < most ? realloc(*items, wanted * nbytes) : NULL;
  if (!grown)
    return false;
  *items = grown;
  *capacity = wanted;
  return true;
}

/* The id of a name, from 1. 0: the limit is reached, or memory is short. */
static uint32_t name_id_locked(const char *text) {
  size_t nbytes = strnlen(text, VGW_ACTIVITY_NAME_NBYTES - 1);
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < nbytes; i++)
    hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
  struct name **bucket = &kept.buckets[hash % BUCKETS];
  for (struct name *n = *bucket; n; n = n->next)
    if (!strncmp(n->text, text, nbytes) && !n->text[nbytes])
      return n->id;
  if (!reserve((void **)&kept.names, kept.name_count, &kept.name_capacity, NAMES_MAX, sizeof *kept.names))
    return 0;
  struct name *made = malloc(sizeof *made + nbytes + 1);
  if (!made)
    return 0;
  *made = (struct name){.next = *bucket, .id = kept.name_count + 1};
  memcpy(made->text, text, nbytes);
  made->text[nbytes] = 0;
  kept.names[kept.name_count++] = *bucket = made;
  return made->id;
}

void vgx_activity_put(const struct vgw_activity *activity, const char *name) {
  pthread_mutex_lock(&kept.lock);
  if (activity &&
      reserve((void **)&kept.records, kept.count, &kept.capacity, VGW_ACTIVITIES_MAX, sizeof *kept.records)) {
    struct vgw_activity *record = &kept.records[kept.count++];
    *record = *activity;
    record->name = name ? name_id_locked(name) : 0;
  } else {
    kept.dropped++;
  }
  pthread_mutex_unlock(&kept.lock);
}

void vgx_activities_clear(void) {
  pthread_mutex_lock(&kept.lock);
  for (uint32_t i = 0; i < kept.name_count; i++)
    free(kept.names[i]);
  free(kept.names);
  free(kept.records);
  memset(kept.buckets, 0, sizeof kept.buckets);
  kept.names = NULL;
  kept.records = NULL;
  kept.name_count = kept.name_capacity = kept.count = kept.capacity = 0;
  kept.dropped = 0;
  pthread_mutex_unlock(&kept.lock);
}

CUresult vgx_vgpuActivityStart(struct vgx_session *s, const struct vgw_req_vgpuActivityStart *req,
                               struct vgw_rep_vgpuActivityStart *rep) {
  if (!s->backend->measure)
    return vgx_not_offered(s, "profiling");
  if (req->what & ~(uint32_t)VGW_MEASURE_ALL)
    return CUDA_ERROR_INVALID_VALUE;
  unsigned what = req->what;
  CUresult result = s->backend->measure(vgx_activity_put, &what);
  rep->how = what;
  return result;
}

CUresult vgx_vgpuActivityStop(struct vgx_session *s) {
  unsigned none = 0;
  return s->backend->measure ? s->backend->measure(NULL, &none) : CUDA_SUCCESS;
}

CUresult vgx_vgpuActivityClock(struct vgx_session *s, struct vgw_rep_vgpuActivityClock *rep) {
  (void)s;
  rep->now_ns = vgw_now_ns();
  pthread_mutex_lock(&kept.lock);
  rep->waiting = kept.count;
  rep->dropped = kept.dropped;
  pthread_mutex_unlock(&kept.lock);
  return CUDA_SUCCESS;
}

/* Return the oldest records, as many as fit. */
CUresult vgx_vgpuActivityTake(struct vgx_session *s, const struct vgw_req_vgpuActivityTake *req, void *records,
                              uint64_t *records_nbytes) {
  (void)req;
  if (s->backend->measured)
    s->backend->measured();
  pthread_mutex_lock(&kept.lock);
  uint64_t fit = *records_nbytes / sizeof *kept.records;
  uint32_t taken = fit < kept.count ? (uint32_t)fit : kept.count;
  if (taken)
    memcpy(records, kept.records, taken * sizeof *kept.records);
  if (taken < kept.count)
    memmove(kept.records, kept.records + taken, (kept.count - taken) * sizeof *kept.records);
  kept.count -= taken;
  pthread_mutex_unlock(&kept.lock);
  *records_nbytes = taken * sizeof *kept.records;
  return CUDA_SUCCESS;
}

CUresult vgx_vgpuActivityName(struct vgx_session *s, const struct vgw_req_vgpuActivityName *req, void *text,
                              uint64_t *text_nbytes) {
  (void)s;
  CUresult result = CUDA_ERROR_NOT_FOUND;
  pthread_mutex_lock(&kept.lock);
  if (req->name && req->name <= kept.name_count) {
    const char *name = kept.names[req->name - 1]->text;
    uint64_t nbytes = strlen(name);
    *text_nbytes = nbytes < *text_nbytes ? nbytes : *text_nbytes;
    memcpy(text, name, *text_nbytes);
    result = CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&kept.lock);
  return result;
}
