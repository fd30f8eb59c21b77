/* While the backend exports an object it may wait for streams, whose work takes ipc_lock for interprocess events: so
 * exports are under a lock of their own. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "vgx_ipc.c" /* with their static functions and variables */
#include "vgx_share.c"

#define CHECK(condition)                                                                                               \
  if (!(condition))                                                                                                    \
  exit(__LINE__ % 200 + 1)

static struct vgx_session session;
static int exported, published;

static void check_locks(void) {
  CHECK(pthread_mutex_trylock(&session.ipc_lock) == 0);
  pthread_mutex_unlock(&session.ipc_lock);
  CHECK(pthread_mutex_trylock(&session.export_lock) != 0); /* each object is exported once */
  exported++;
}
static CUresult export_address(struct vgx_ipc_object *object, CUdeviceptr address) {
  (void)object, (void)address;
  check_locks();
  return CUDA_SUCCESS;
}
static CUresult export_physical(struct vgx_ipc_object *object, CUmemGenericAllocationHandle handle) {
  (void)object, (void)handle;
  check_locks();
  return CUDA_SUCCESS;
}
static CUresult export_pool(struct vgx_ipc_object *object, CUmemoryPool pool) {
  (void)object, (void)pool;
  check_locks();
  return CUDA_SUCCESS;
}
static CUresult attribute(void *data, int which, CUdeviceptr address) {
  (void)which;
  *(uint64_t *)data = address;
  return CUDA_SUCCESS;
}

void vgx_desk_open(struct vgx_desk *opened, int fd) { opened->fd = fd; }
bool vgx_desk_send(struct vgx_desk *to, const void *question, size_t nbytes, int fd) {
  (void)to, (void)question, (void)nbytes, (void)fd;
  published++;
  return true;
}
bool vgx_desk_receive(struct vgx_desk *from, void *answer, size_t nbytes, int *fd) {
  (void)from, (void)fd;
  memset(answer, 0, nbytes);
  return true;
}
CUresult vgx_not_offered(struct vgx_session *s, const char *name) {
  (void)s, (void)name;
  return CUDA_ERROR_NOT_SUPPORTED;
}

int main(void) {
  static struct vgx_backend backend = {.ipc_export = export_address,
                                       .share_export = export_physical,
                                       .pool_export = export_pool,
                                       .pointer_export = export_address,
                                       .cuPointerGetAttribute = attribute};
  session.backend = &backend;
  pthread_mutex_init(&session.ipc_lock, NULL);
  pthread_mutex_init(&session.export_lock, NULL);
  vgx_ipc_set(0);
  for (int i = 0; i < 2; i++) { /* the second time each is known */
    CHECK(vgx_cuIpcGetMemHandle(&session, &(struct vgw_req_cuIpcGetMemHandle){.dptr = 512},
                                &(struct vgw_rep_cuIpcGetMemHandle){0}) == CUDA_SUCCESS);
    CHECK(vgx_cuMemExportToShareableHandle(&session, &(struct vgw_req_cuMemExportToShareableHandle){.handle = 1}, 1,
                                           &(struct vgw_rep_cuMemExportToShareableHandle){0}) == CUDA_SUCCESS);
    CHECK(vgx_cuMemPoolExportToShareableHandle(&session, &(struct vgw_req_cuMemPoolExportToShareableHandle){.pool = 1},
                                               NULL,
                                               &(struct vgw_rep_cuMemPoolExportToShareableHandle){0}) == CUDA_SUCCESS);
    CHECK(vgx_cuMemPoolExportPointer(&session, &(struct vgw_req_cuMemPoolExportPointer){.ptr = 512},
                                     &(struct vgw_rep_cuMemPoolExportPointer){0}) == CUDA_SUCCESS);
  }
  CHECK(exported == 4 && published == 4);
  CHECK(pthread_mutex_trylock(&session.export_lock) == 0);
  return 0;
}
