/* Memory of the worker's own, on a channel that shares none: copies of a client's host memory, which kernels reach, and
 * staging memory of graphs. The client moves its bytes in and out. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>

#include "vgx_custom.h"
#include "vgx_memory.h"
#include "vgx_session.h"

CUresult vgx_vgpuHostReserve(struct vgx_session *s, const struct vgw_req_vgpuHostReserve *req) {
  if (!vgx_in_window(req->address, req->nbytes))
    return vgx_violation(s, "reserved memory outside its window");
  void *at = mmap((void *)req->address, req->nbytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  return vgx_add_mapping(s, at, req->nbytes, VGX_NO_REGION);
}
