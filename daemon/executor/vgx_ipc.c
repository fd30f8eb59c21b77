/* Sharing allocations, and the questions to vgpud. Each allocation is exported once: its handle is the same every time
 * it is asked for, as the real driver's is, until it is freed. */
#include "vgx_ipc.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vgw_enums.h"
#include "vgx_custom.h"
#include "vgx_desk.h"

enum { PUBLISH = 1, FIND = 2, WITHDRAW = 3 };
enum { EXPORTS_MAX = 4096 };

struct question {
  uint32_t kind, what;
  uint64_t nbytes;
  char token[64], handle[64];
};

struct answer {
  int32_t result;
  uint32_t zero;
  uint64_t nbytes;
  char token_or_handle[64];
};

static struct vgx_desk desk = VGX_DESK_NONE;

void vgx_ipc_set(int fd) { vgx_desk_open(&desk, fd); }

bool vgx_ipc_is_there(void) { return desk.fd >= 0; }

static CUresult ask(const struct question *question, int fd, struct answer *answer, int *answered_fd) {
  pthread_mutex_lock(&desk.lock);
  bool answered = vgx_desk_send(&desk, question, sizeof *question, fd) &&
                  vgx_desk_receive(&desk, answer, sizeof *answer, answered_fd);
  pthread_mutex_unlock(&desk.lock);
  return answered ? (CUresult)answer->result : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult vgx_ipc_publish(enum vgx_ipc_what what, const struct vgx_ipc_object *object, uint64_t nbytes, char token[64]) {
  struct question question = {.kind = PUBLISH, .what = what, .nbytes = nbytes};
  memcpy(question.handle, object->handle.reserved, sizeof question.handle);
  struct answer answer;
  int none = -1;
  CUresult result = ask(&question, object->fd, &answer, &none);
  if (none >= 0)
    close(none);
  if (result == CUDA_SUCCESS)
    memcpy(token, answer.token_or_handle, sizeof answer.token_or_handle);
  return result;
}

CUresult vgx_ipc_find(enum vgx_ipc_what what, const char token[64], struct vgx_ipc_object *object, uint64_t *nbytes) {
  struct question question = {.kind = FIND, .what = what};
  memcpy(question.token, token, sizeof question.token);
  struct answer answer;
  int fd = -1;
  CUresult result = ask(&question, -1, &answer, &fd);
  if (result != CUDA_SUCCESS) {
    if (fd >= 0)
      close(fd);
    return result;
  }
  memcpy(object->handle.reserved, answer.token_or_handle, sizeof answer.token_or_handle);
  object->fd = fd;
  *nbytes = answer.nbytes;
  return CUDA_SUCCESS;
}

void vgx_ipc_withdraw(const char token[64]) {
  struct question question = {.kind = WITHDRAW};
  memcpy(question.token, token, sizeof question.token);
  struct answer answer;
  int none = -1;
  ask(&question, -1, &answer, &none);
  if (none >= 0)
    close(none);
}

bool vgx_ipc_export_begin(struct vgx_session *s, enum vgx_ipc_what what, uint64_t key, void *token) {
  pthread_mutex_lock(&s->export_lock);
  for (uint32_t i = 0; i < s->export_count; i++)
    if (s->exports[i].what == what && s->exports[i].key == key) {
      memcpy(token, s->exports[i].token, sizeof s->exports[i].token);
      pthread_mutex_unlock(&s->export_lock);
      return true;
    }
  return false;
}

static CUresult publish_locked(struct vgx_session *s, const struct vgx_ipc_object *object, uint64_t nbytes,
                               struct vgx_export *made) {
  struct vgx_export *grown =
      s->export_count < EXPORTS_MAX ? realloc(s->exports, (s->export_count + 1) * sizeof *grown) : NULL;
  if (!grown)
    return CUDA_ERROR_OUT_OF_MEMORY;
  s->exports = grown;
  CUresult result = vgx_ipc_publish(made->what, object, nbytes, made->token);
  if (result == CUDA_SUCCESS)
    s->exports[s->export_count++] = *made;
  return result;
}

CUresult vgx_ipc_export_end(struct vgx_session *s, enum vgx_ipc_what what, uint64_t key, CUresult made,
                            const struct vgx_ipc_object *object, uint64_t nbytes, void *token) {
  struct vgx_export fresh = {.what = what, .key = key};
  CUresult result = made == CUDA_SUCCESS ? publish_locked(s, object, nbytes, &fresh) : made;
  pthread_mutex_unlock(&s->export_lock);
  if (made == CUDA_SUCCESS && object->fd >= 0)
    close(object->fd);
  if (result == CUDA_SUCCESS)
    memcpy(token, fresh.token, sizeof fresh.token);
  return result;
}

CUresult vgx_cuIpcGetMemHandle(struct vgx_session *s, const struct vgw_req_cuIpcGetMemHandle *req,
                               struct vgw_rep_cuIpcGetMemHandle *rep) {
  const struct vgx_backend *b = s->backend;
  uint64_t base = 0, nbytes = 0;
  if (!b->ipc_export || !b->cuPointerGetAttribute || !vgx_ipc_is_there())
    return vgx_not_offered(s, "cuIpcGetMemHandle");
  if (b->cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, req->dptr) != CUDA_SUCCESS ||
      b->cuPointerGetAttribute(&nbytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, base) != CUDA_SUCCESS)
    return CUDA_ERROR_INVALID_VALUE;
  struct vgx_ipc_object object = {.fd = -1};
  if (vgx_ipc_export_begin(s, VGX_IPC_MEMORY, base, &rep->handle))
    return CUDA_SUCCESS;
  CUresult result = b->ipc_export(&object, base);
  return vgx_ipc_export_end(s, VGX_IPC_MEMORY, base, result, &object, nbytes, &rep->handle);
}

CUresult vgx_cuIpcOpenMemHandle_v2(struct vgx_session *s, const struct vgw_req_cuIpcOpenMemHandle_v2 *req,
                                   struct vgw_rep_cuIpcOpenMemHandle_v2 *rep) {
  struct vgx_ipc_object object;
  CUdeviceptr base = 0;
  if (!s->backend->ipc_open || !vgx_ipc_is_there())
    return vgx_not_offered(s, "cuIpcOpenMemHandle");
  CUresult result = vgx_ipc_find(VGX_IPC_MEMORY, req->handle.reserved, &object, &rep->nbytes);
  if (result != CUDA_SUCCESS)
    return result;
  result = s->backend->ipc_open(&base, &object, req->flags);
  if (object.fd >= 0)
    close(object.fd);
  if (result == CUDA_SUCCESS)
    rep->base = base;
  return result;
}

/* --- the end of exports --- */

void vgx_ipc_free(struct vgx_session *s) {
  free(s->exports);
  s->exports = NULL;
  s->export_count = 0;
}

void vgx_ipc_remove_locked(struct vgx_session *s, uint32_t index) {
  vgx_ipc_withdraw(s->exports[index].token);
  s->exports[index] = s->exports[--s->export_count];
}

/* Whether the export's key is an address. */
static bool is_memory(const struct vgx_export *made) {
  return made->what == VGX_IPC_MEMORY || made->what == VGX_IPC_POINTER;
}

void vgx_ipc_freed(struct vgx_session *s, uint64_t address) {
  pthread_mutex_lock(&s->export_lock);
  for (uint32_t i = s->export_count; i-- > 0;)
    if (is_memory(&s->exports[i]) && s->exports[i].key == address)
      vgx_ipc_remove_locked(s, i);
  pthread_mutex_unlock(&s->export_lock);
}

void vgx_ipc_context_destroyed(struct vgx_session *s) {
  uint64_t base;
  pthread_mutex_lock(&s->export_lock);
  for (uint32_t i = s->export_count; i-- > 0;)
    if (is_memory(&s->exports[i]) && s->backend->cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                                                       s->exports[i].key) != CUDA_SUCCESS)
      vgx_ipc_remove_locked(s, i);
  pthread_mutex_unlock(&s->export_lock);
}
