/* A page that no event uses any more is unregistered without ipc_lock: the backend then waits for all streams, in which
 * host functions may be about to take that lock. A record's number is not read before its work is in the stream. */
#include "vgx_ipc_event.c" /* with their static functions and variables */
#include "vgx_ipc_event_sync.c"

#define CHECK(condition)                                                                                               \
  if (!(condition))                                                                                                    \
  exit(__LINE__ % 200 + 1)

static struct vgx_session session;
static int unregistered;

static CUresult host_unregister(void *at) {
  (void)at;
  unregistered++;
  CHECK(pthread_mutex_trylock(&session.ipc_lock) == 0);
  pthread_mutex_unlock(&session.ipc_lock);
  return CUDA_SUCCESS;
}

static CUresult launch_host_function(CUstream stream, CUhostFn function, void *argument) {
  (void)stream, (void)function, (void)argument;
  return CUDA_SUCCESS;
}

CUresult vgx_register(struct vgx_session *s, void *at, uint64_t nbytes) {
  (void)s, (void)at, (void)nbytes;
  return CUDA_SUCCESS;
}
CUresult vgx_not_offered(struct vgx_session *s, const char *name) {
  (void)s, (void)name;
  return CUDA_ERROR_NOT_SUPPORTED;
}
void vgx_record_unref_one(enum vgw_kind kind, uint32_t id) { (void)kind, (void)id; }
bool vgx_ipc_is_there(void) { return true; }
void vgx_ipc_withdraw(const char token[64]) { (void)token; }
CUresult vgx_ipc_publish(enum vgx_ipc_what what, const struct vgx_ipc_object *object, uint64_t nbytes, char token[64]) {
  (void)what, (void)object, (void)nbytes, (void)token;
  return CUDA_SUCCESS;
}
CUresult vgx_ipc_find(enum vgx_ipc_what what, const char token[64], struct vgx_ipc_object *object, uint64_t *nbytes) {
  (void)what, (void)token, (void)object, (void)nbytes;
  return CUDA_ERROR_INVALID_VALUE;
}

void vgx_log(struct vgx_session *s, int level, const char *format, ...) { (void)s, (void)level, (void)format; }
bool vgx_defer(struct vgx_session *s, CUresult result) { return (void)s, result != CUDA_SUCCESS; }
bool vgx_thread_start(struct vgx_session *s, void *(*run)(void *), struct vgx_ring *ring,
                      void (*answer)(struct executor_thread *, const struct vgw_header *, const struct vgx_reply *)) {
  (void)s, (void)run, (void)ring, (void)answer;
  return true;
}
void vgx_thread_end(struct executor_thread *t) { (void)t; }

static int written, waited;

static CUresult write_word(CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags) {
  (void)stream, (void)flags;
  CHECK(pthread_mutex_trylock(&session.ipc_events->order) != 0);
  atomic_store((_Atomic uint32_t *)(uintptr_t)address, value - (written++ == 0)); /* the first one is not done */
  return CUDA_SUCCESS;
}

static CUresult wait_word(CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags) {
  (void)stream, (void)address, (void)value, (void)flags;
  CHECK(pthread_mutex_trylock(&session.ipc_events->order) == 0);
  pthread_mutex_unlock(&session.ipc_events->order);
  waited++;
  return CUDA_SUCCESS;
}

static CUevent make(void) {
  CUevent event = NULL;
  CHECK(vgx_vgpuIpcEventCreate(&session, NULL, &event) == CUDA_SUCCESS);
  return event;
}

int main(void) {
  static struct vgx_backend backend = {.cuMemHostUnregister = host_unregister,
                                       .cuLaunchHostFunc = launch_host_function,
                                       .cuStreamWriteValue32_v2 = write_word,
                                       .cuStreamWaitValue32_v2 = wait_word,
                                       .has_words = true};
  session.backend = &backend;
  pthread_mutex_init(&session.ipc_lock, NULL);
  CHECK(vgx_vgpuIpcEventDestroy(&session, NULL, make()) == CUDA_SUCCESS);
  CHECK(unregistered == 1 && session.ipc_event_count == 0);
  CUevent used = make();
  struct vgx_ipc_event *work = vgx_ipc_event_ref(used, 1); /* a host function in a stream */
  CHECK(vgx_vgpuIpcEventDestroy(&session, NULL, used) == CUDA_SUCCESS);
  CHECK(unregistered == 1 && session.ipc_event_count == 1);
  vgx_ipc_event_unref(work);
  make(); /* looks for what is not used any more */
  CHECK(unregistered == 2 && session.ipc_event_count == 1);
  CUevent event = make();
  CHECK(vgx_vgpuIpcEventRecord(&session, &(struct vgw_req_vgpuIpcEventRecord){0}, event, NULL) == CUDA_SUCCESS);
  CHECK(vgx_vgpuIpcEventWait(&session, &(struct vgw_req_vgpuIpcEventWait){0}, event, NULL) == CUDA_SUCCESS);
  CHECK(written == 1 && waited == 1);
  CHECK(vgx_vgpuIpcEventRecord(&session, &(struct vgw_req_vgpuIpcEventRecord){0}, event, NULL) == CUDA_SUCCESS);
  CHECK(vgx_vgpuIpcEventWait(&session, &(struct vgw_req_vgpuIpcEventWait){0}, event, NULL) == CUDA_SUCCESS);
  CHECK(written == 2 && waited == 1); /* it is done */
  return 0;
}
