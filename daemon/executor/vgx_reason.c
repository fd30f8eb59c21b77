/* Why calls fail, in words, for the person in front of the program. The backend and the executor add lines here;
 * replies announce them (VGW_REASON_PENDING), and the client fetches them with vgpuTakeReasons.
 *
 * Bounded: a few lines at a time, of a bounded length each; further lines are dropped and counted. */
#include "vgx_custom.h"
#include "vgx_meter.h"
#include "vgx_session.h"

#include <stdarg.h>
#include <stdio.h>

enum { REASONS_MAX = 16, ESCAPED_NBYTES = VGX_REASON_NBYTES + 32 };

static struct {
  pthread_mutex_t lock;
  char lines[REASONS_MAX][ESCAPED_NBYTES];
  uint32_t dropped;
  atomic_uint count;                             /* changed under `lock` */
} reasons = {.lock = PTHREAD_MUTEX_INITIALIZER}; /* of the process's one session */

bool vgx_reason_pending(void) { return atomic_load_explicit(&reasons.count, memory_order_acquire); }

void vgx_reason_add(CUresult result, bool ends, const char *text) {
  if (ends)
    atomic_fetch_add(&vgx_meter->faults, 1);
  pthread_mutex_lock(&reasons.lock);
  uint32_t count = atomic_load(&reasons.count);
  if (count == REASONS_MAX) {
    reasons.dropped++;
  } else {
    char *line = reasons.lines[count];
    int used = snprintf(line, ESCAPED_NBYTES, "%c %d ", ends ? 'E' : 'R', (int)result);
    for (int i = 0; text[i] && i < VGX_REASON_NBYTES; i++) /* a reason is one line; the client escapes what it prints */
      line[used++] = (unsigned char)text[i] < ' ' ? ' ' : text[i];
    line[used++] = '\n';
    line[used] = 0;
    atomic_store_explicit(&reasons.count, count + 1, memory_order_release);
  }
  pthread_mutex_unlock(&reasons.lock);
}

void vgx_reason(struct vgx_session *s, CUresult result, const char *format, ...) {
  char text[VGX_REASON_NBYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  vgx_log(s, 4, "%s", text);
  vgx_reason_add(result, false, text);
}

void vgx_reasons_clear(void) {
  pthread_mutex_lock(&reasons.lock);
  atomic_store(&reasons.count, 0);
  reasons.dropped = 0;
  pthread_mutex_unlock(&reasons.lock);
}

/* Whole lines, the oldest first, as many as fit; the rest stays. */
CUresult vgx_vgpuTakeReasons(struct vgx_session *s, const struct vgw_req_vgpuTakeReasons *req, void *text,
                             uint64_t *text_nbytes) {
  (void)s, (void)req;
  uint64_t used = 0, capacity = *text_nbytes;
  pthread_mutex_lock(&reasons.lock);
  uint32_t count = atomic_load(&reasons.count), taken = 0;
  for (; taken < count; taken++) {
    size_t nbytes = strlen(reasons.lines[taken]);
    if (nbytes > capacity - used)
      break;
    memcpy((char *)text + used, reasons.lines[taken], nbytes);
    used += nbytes;
  }
  memmove(reasons.lines, reasons.lines[taken], (count - taken) * sizeof reasons.lines[0]);
  atomic_store_explicit(&reasons.count, count - taken, memory_order_release);
  char more[64];
  int nbytes = reasons.dropped && taken == count
                   ? snprintf(more, sizeof more, "R 0 %u more reasons were dropped\n", reasons.dropped)
                   : 0;
  if (nbytes && (uint64_t)nbytes <= capacity - used) {
    memcpy((char *)text + used, more, (size_t)nbytes);
    used += (uint64_t)nbytes;
    reasons.dropped = 0;
  }
  pthread_mutex_unlock(&reasons.lock);
  *text_nbytes = used;
  return CUDA_SUCCESS;
}

CUresult vgx_not_offered(struct vgx_session *s, const char *name) {
  vgx_reason(s, CUDA_ERROR_NOT_SUPPORTED, "%s is not offered by the %s backend", name, s->backend->name);
  return CUDA_ERROR_NOT_SUPPORTED;
}
