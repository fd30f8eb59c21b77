/* Staging memory of the worker's own, for graphs that copy a client's memory over a channel that shares none: the
 * client moves its bytes in and out when a launch reaches the copy. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>

#include "vgx_custom.h"
#include "vgx_memory.h"
#include "vgx_session.h"

#define RESERVED_NBYTES_MAX (1ull << 30) /* of a session */

CUresult vgx_vgpuHostReserve(struct vgx_session *s, const struct vgw_req_vgpuHostReserve *req) {
  if (!vgx_in_window(req->address, req->nbytes))
    return vgx_violation(s, "reserved memory outside its window");
  pthread_mutex_lock(&s->table_lock);
  bool room = req->nbytes <= RESERVED_NBYTES_MAX - s->reserved_nbytes;
  if (room)
    s->reserved_nbytes += req->nbytes; /* counted until the session's end */
  pthread_mutex_unlock(&s->table_lock);
  if (!room)
    return CUDA_ERROR_OUT_OF_MEMORY;
  void *at = mmap((void *)req->address, req->nbytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  return vgx_add_mapping(s, at, req->nbytes, VGX_NO_REGION);
}
