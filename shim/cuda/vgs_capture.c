#include "vgs_capture.h"
#include "vgs_api.h"
#include "vgs_enter.h"
#include <pthread.h>

enum { MODE_GLOBAL, MODE_THREAD_LOCAL, MODE_RELAXED };
enum { CAPTURES_MAX = 64, CONTEXTS_MAX = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  uint64_t id; /* 0: free */
  int mode;
  pthread_t thread;
  uint32_t context_id; /* in which it began */
  bool invalidated;
  CUgraph graph; /* NULL: it has no object yet */
  bool owned;    /* made for the capture */
  struct vgs_works works;
  uint32_t blocked[CONTEXTS_MAX]; /* wire ids of the contexts in which a blocking stream belongs to the capture */
  unsigned blocked_count;         /* more than CONTEXTS_MAX: every context counts as one of them */
} captures[CAPTURES_MAX];
static uint64_t last_id;
static int active_count; /* under lock; VGS_CAPTURING is set while it is not 0 */

static _Thread_local int thread_mode = MODE_GLOBAL;

/* Under `lock`. */
static int find(uint64_t id) {
  for (int i = 0; id && i < CAPTURES_MAX; i++)
    if (captures[i].id == id)
      return i;
  return -1;
}

static void count_locked(int change) {
  active_count += change;
  vgs_divert(VGS_CAPTURING, active_count != 0);
}

enum vgs_capture_status vgs_capture_status(uint64_t id) {
  if (!id || !vgs_diverted(VGS_CAPTURING))
    return VGS_CAPTURE_NONE;
  pthread_mutex_lock(&lock);
  int at = find(id);
  enum vgs_capture_status status = at < 0                     ? VGS_CAPTURE_NONE
                                   : captures[at].invalidated ? VGS_CAPTURE_INVALIDATED
                                                              : VGS_CAPTURE_ACTIVE;
  pthread_mutex_unlock(&lock);
  return status;
}

static void add_stream_locked(int at, const struct vgs_stream *stream) {
  if (stream->flags & CU_STREAM_NON_BLOCKING || captures[at].blocked_count > CONTEXTS_MAX)
    return;
  for (unsigned i = 0; i < captures[at].blocked_count; i++)
    if (captures[at].blocked[i] == stream->object.context_id)
      return;
  if (captures[at].blocked_count < CONTEXTS_MAX)
    captures[at].blocked[captures[at].blocked_count] = stream->object.context_id;
  captures[at].blocked_count++;
}

uint64_t vgs_capture_begin(struct vgs_stream *stream, int mode) {
  uint64_t id = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < CAPTURES_MAX && !id; i++)
    if (!captures[i].id) {
      id = captures[i].id = ++last_id;
      captures[i].mode = mode;
      captures[i].thread = pthread_self();
      captures[i].context_id = stream->object.context_id;
      captures[i].invalidated = false;
      captures[i].graph = NULL;
      captures[i].blocked_count = 0;
      add_stream_locked(i, stream);
      count_locked(1);
    }
  pthread_mutex_unlock(&lock);
  if (id) {
    stream->capture = id;
    stream->capture_origin = true;
  }
  return id;
}

enum vgs_capture_status vgs_capture_end(uint64_t id, struct vgs_works *works) {
  enum vgs_capture_status status = VGS_CAPTURE_NONE;
  *works = (struct vgs_works){0};
  pthread_mutex_lock(&lock);
  int at = find(id);
  if (at >= 0) {
    status = captures[at].invalidated ? VGS_CAPTURE_INVALIDATED : VGS_CAPTURE_ACTIVE;
    captures[at].id = 0;
    *works = captures[at].works;
    captures[at].works = (struct vgs_works){0};
    count_locked(-1);
  }
  pthread_mutex_unlock(&lock);
  return status;
}

void vgs_capture_end_context(uint32_t context_id) {
  for (int i = 0; i < CAPTURES_MAX; i++) {
    struct vgs_works works;
    pthread_mutex_lock(&lock);
    uint64_t id = captures[i].context_id == context_id ? captures[i].id : 0;
    pthread_mutex_unlock(&lock);
    if (id) {
      vgs_capture_end(id, &works);
      vgs_works_clear(&works);
    }
  }
}

void vgs_capture_set_graph(uint64_t id, CUgraph graph, bool owned) {
  pthread_mutex_lock(&lock);
  int at = find(id);
  if (at >= 0) {
    captures[at].graph = graph;
    captures[at].owned = owned;
  }
  pthread_mutex_unlock(&lock);
}

CUgraph vgs_capture_graph(uint64_t id, bool *owned) {
  pthread_mutex_lock(&lock);
  int at = find(id);
  CUgraph graph = at >= 0 ? captures[at].graph : NULL;
  *owned = at >= 0 && captures[at].owned;
  pthread_mutex_unlock(&lock);
  return graph;
}

bool vgs_capture_add_work(uint64_t id, struct vgs_work *work) {
  pthread_mutex_lock(&lock);
  int at = find(id);
  bool kept = at >= 0 && vgs_works_add(&captures[at].works, work, 0, NULL);
  pthread_mutex_unlock(&lock);
  return kept;
}

bool vgs_capture_add_works(uint64_t id, const struct vgs_works *works) {
  pthread_mutex_lock(&lock);
  int at = find(id);
  bool kept = at >= 0 && vgs_works_add_all(&captures[at].works, works);
  pthread_mutex_unlock(&lock);
  return kept;
}

void vgs_capture_spread(struct vgs_stream *stream, uint64_t id) {
  pthread_mutex_lock(&lock);
  int at = find(id);
  if (at >= 0)
    add_stream_locked(at, stream);
  pthread_mutex_unlock(&lock);
  stream->capture = id;
  stream->capture_origin = false;
}

CUresult vgs_capture_forbid(uint64_t id) {
  pthread_mutex_lock(&lock);
  int at = find(id);
  if (at >= 0)
    captures[at].invalidated = true;
  pthread_mutex_unlock(&lock);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static bool blocks_locked(int at, uint32_t context_id) {
  unsigned count = captures[at].blocked_count;
  for (unsigned i = 0; i < count && count <= CONTEXTS_MAX; i++)
    if (captures[at].blocked[i] == context_id)
      return true;
  return count > CONTEXTS_MAX;
}

static CUresult check_legacy(bool invalidate) {
  CUresult result = CUDA_SUCCESS;
  if (!vgs_diverted(VGS_CAPTURING))
    return CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < CAPTURES_MAX; i++)
    if (captures[i].id && blocks_locked(i, vgs_context_entered->wire_id)) {
      captures[i].invalidated |= invalidate;
      result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
  pthread_mutex_unlock(&lock);
  return result;
}

CUresult vgs_capture_check_legacy(void) { return check_legacy(true); }

CUresult vgs_capture_ask_legacy(void) { return check_legacy(false); }

CUresult vgs_capture_check_unsafe(void) {
  if (!vgs_diverted(VGS_CAPTURING) || thread_mode == MODE_RELAXED)
    return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < CAPTURES_MAX; i++) {
    if (!captures[i].id || captures[i].mode == MODE_RELAXED)
      continue;
    bool mine = pthread_equal(captures[i].thread, pthread_self());
    if (mine || (captures[i].mode == MODE_GLOBAL && thread_mode == MODE_GLOBAL)) {
      captures[i].invalidated = true;
      result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  pthread_mutex_unlock(&lock);
  return result;
}

CUresult vgs_cuThreadExchangeStreamCaptureMode(int *mode) {
  if (!mode || *mode < MODE_GLOBAL || *mode > MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  int previous = thread_mode;
  thread_mode = *mode;
  *mode = previous;
  return CUDA_SUCCESS;
}
