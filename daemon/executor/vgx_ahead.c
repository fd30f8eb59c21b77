#include "vgx_ahead.h"
#include "vgx_host_quota.h"

#include <stdlib.h>
#include <string.h>

/* In both queues, with what keeping takes. All count for the tenant, and the first are kept even if it may have no
 * more: a client of ours has fewer bytes of records under way (vgs_record_stream.c). For another one reading stops
 * here, and with it host functions, until a call that the driver blocks goes on or the session ends. */
#define KEPT_NBYTES_MAX (256ull << 20)
#define KEPT_ANYWAY_NBYTES (32ull << 20)

struct vgx_ahead_record {
  struct vgx_ahead_record *next;
  _Alignas(16) struct vgw_header header; /* and the rest of the record */
};

void vgx_ahead_init(struct vgx_session *s) {
  pthread_mutex_init(&s->ahead.lock, NULL);
  pthread_cond_init(&s->ahead.changed, NULL);
  s->ahead.in_turn.end = &s->ahead.in_turn.records;
  s->ahead.questions.end = &s->ahead.questions.records;
}

bool vgx_ahead_is_due(const struct vgx_session *s) {
  return atomic_load(&s->has_callbacks) && !atomic_load(&s->ring_memory[0]);
}

static uint64_t nbytes_of(const struct vgx_ahead_record *kept) { return sizeof *kept + kept->header.length; }

/* Whether a record may be kept, which then counts. Nobody waits in a session that ends. */
static bool fits_locked(struct vgx_session *s, uint64_t nbytes) {
  uint64_t sum = s->ahead.in_turn.nbytes + s->ahead.questions.nbytes + nbytes;
  bool ended = atomic_load(&s->ended);
  return (ended || sum <= KEPT_NBYTES_MAX) && vgx_host_count(s, nbytes, ended || sum <= KEPT_ANYWAY_NBYTES);
}

bool vgx_ahead_push(struct vgx_session *s, struct vgx_ahead_queue *queue, const struct vgw_header *h) {
  struct vgx_ahead_record *kept = malloc(sizeof *kept + h->length);
  if (!kept) {
    vgx_end(s, VGX_ENDED_BY_RESOURCES, "no memory for what was read ahead");
    return false;
  }
  kept->next = NULL;
  memcpy(&kept->header, h, h->length);
  pthread_mutex_lock(&s->ahead.lock);
  while (!fits_locked(s, nbytes_of(kept))) {
    s->ahead.full = true;
    pthread_cond_wait(&s->ahead.changed, &s->ahead.lock);
  }
  *queue->end = kept;
  queue->end = &kept->next;
  queue->nbytes += nbytes_of(kept);
  pthread_cond_broadcast(&s->ahead.changed);
  pthread_mutex_unlock(&s->ahead.lock);
  return true;
}

const struct vgw_header *vgx_ahead_pop(struct executor_thread *t, struct vgx_ahead_queue *queue) {
  struct vgx_session *s = t->s;
  pthread_mutex_lock(&s->ahead.lock);
  while (!queue->records && !s->ahead.over && !atomic_load(&s->ended))
    pthread_cond_wait(&s->ahead.changed, &s->ahead.lock);
  struct vgx_ahead_record *oldest = atomic_load(&s->ended) ? NULL : queue->records;
  if (oldest) {
    queue->records = oldest->next;
    if (!oldest->next)
      queue->end = &queue->records;
    queue->nbytes -= nbytes_of(oldest);
    vgx_host_release(s, nbytes_of(oldest));
    if (s->ahead.full)
      pthread_cond_broadcast(&s->ahead.changed);
    s->ahead.full = false;
  }
  pthread_mutex_unlock(&s->ahead.lock);
  if (!oldest)
    return NULL;
  memcpy(t->record, &oldest->header, oldest->header.length);
  free(oldest);
  return (const struct vgw_header *)t->record;
}

void vgx_ahead_end(struct vgx_session *s) {
  pthread_mutex_lock(&s->ahead.lock);
  s->ahead.over = true;
  pthread_cond_broadcast(&s->ahead.changed);
  pthread_mutex_unlock(&s->ahead.lock);
}

static void drop(struct vgx_session *s, struct vgx_ahead_queue *queue) {
  vgx_host_release(s, queue->nbytes);
  for (struct vgx_ahead_record *next; queue->records; queue->records = next) {
    next = queue->records->next;
    free(queue->records);
  }
}

void vgx_ahead_fini(struct vgx_session *s) {
  drop(s, &s->ahead.in_turn);
  drop(s, &s->ahead.questions);
}
