/* Completion without a reply: the device itself writes a word of shared pinned memory that the client watches. What the
 * client would have learned from a reply, it learns from `notice` in its rings. */
#include <stdlib.h>

#include "vgx_custom.h"
#include "vgx_memory.h"
#include "vgx_session.h"

struct flag {
  struct vgx_session *session;
  _Atomic uint32_t *word;
  uint32_t value;
};

/* For backends that cannot write a word in a stream; they do not call this once a kernel has faulted. The client may
 * have unmapped the memory since it requested the flag (by a record in another ring, or without a context), so the
 * address is checked again; the lock keeps it mapped. */
static void write_flag(void *argument) {
  struct flag *flag = argument;
  struct vgx_session *s = flag->session;
  if (s->backend->output_pending && s->backend->output_pending())
    vgx_notice(s, VGW_NOTICE_OUTPUT, true);
  pthread_mutex_lock(&s->table_lock);
  if (vgx_is_pinned_locked(s, (uintptr_t)flag->word, sizeof *flag->word))
    atomic_store_explicit(flag->word, flag->value, memory_order_release);
  pthread_mutex_unlock(&s->table_lock);
  free(flag);
}

CUresult vgx_vgpuStreamFlag(struct vgx_session *s, const struct vgw_req_vgpuStreamFlag *req, CUstream stream) {
  if (req->address % sizeof(uint32_t) || !vgx_is_pinned(s, req->address, sizeof(uint32_t)))
    return vgx_violation(s, "a flag outside pinned memory");
  CUresult result = s->backend->has_words
                        ? s->backend->cuStreamWriteValue32_v2(stream, req->address, req->value, 0)
                        : CUDA_ERROR_NOT_SUPPORTED; /* the answer of drivers whose devices cannot do this */
  if (result != CUDA_ERROR_NOT_SUPPORTED)
    return result;
  if (!s->backend->cuLaunchHostFunc)
    return vgx_not_offered(s, "cuStreamWriteValue32");
  struct flag *flag = malloc(sizeof *flag);
  if (!flag)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *flag = (struct flag){s, (_Atomic uint32_t *)(uintptr_t)req->address, req->value};
  result = s->backend->cuLaunchHostFunc(stream, write_flag, flag);
  if (result != CUDA_SUCCESS)
    free(flag);
  return result;
}
