/* User objects: the program's data, destroyed by a function of the program when neither it nor a graph holds a
 * reference any more. The worker does not know them: graphs keep them with their host functions (vgs_work.h). */
#include "vgs_api.h"
#include "vgs_graph.h"
#include "vgs_graph_part.h"
#include "vgs_work.h"
#include <limits.h>

enum { NO_DESTRUCTOR_SYNC = 1, GRAPH_MOVE = 1 };

static CUuserObject handle_of(const struct vgs_work *object) { return (CUuserObject)(uintptr_t)vgs_work_id(object); }

static struct vgs_work *find(CUuserObject handle) {
  uintptr_t id = (uintptr_t)handle;
  return id <= UINT32_MAX ? vgs_work_find_user_object((uint32_t)id) : NULL;
}

static bool is_count(unsigned int count) { return count && count <= INT_MAX; }

CUresult vgs_cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy, unsigned int initialRefcount,
                                unsigned int flags) {
  if (!object_out || !destroy || !is_count(initialRefcount) || flags != NO_DESTRUCTOR_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  const struct vgs_work *object = vgs_work_user_object(destroy, ptr, initialRefcount);
  if (!object)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *object_out = handle_of(object);
  return CUDA_SUCCESS;
}

static CUresult change(CUuserObject handle, unsigned int count, bool (*function)(struct vgs_work *, uint32_t)) {
  struct vgs_work *object = is_count(count) ? find(handle) : NULL;
  if (!object)
    return CUDA_ERROR_INVALID_VALUE;
  bool changed = function(object, count);
  vgs_work_unref(object);
  return changed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vgs_cuUserObjectRetain(CUuserObject object, unsigned int count) {
  return change(object, count, vgs_work_ref_program);
}

CUresult vgs_cuUserObjectRelease(CUuserObject object, unsigned int count) {
  return change(object, count, vgs_work_unref_program);
}

CUresult vgs_cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags) {
  struct vgs_graph *found = vgs_graph_find(graph);
  struct vgs_work *work = found && is_count(count) && !(flags & ~GRAPH_MOVE) ? find(object) : NULL;
  if (!work)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  if (!vgs_works_add_user_object(&vgs_graph_outermost(found)->works, work, count))
    result = CUDA_ERROR_OUT_OF_MEMORY;
  else if (flags & GRAPH_MOVE && !vgs_work_unref_program(work, count)) {
    vgs_works_remove_user_object(&vgs_graph_outermost(found)->works, work, count);
    result = CUDA_ERROR_INVALID_VALUE;
  }
  vgs_work_unref(work);
  return result;
}

CUresult vgs_cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
  struct vgs_graph *found = vgs_graph_find(graph);
  struct vgs_work *work = found && is_count(count) ? find(object) : NULL;
  if (!work)
    return CUDA_ERROR_INVALID_VALUE;
  bool dropped = vgs_works_remove_user_object(&vgs_graph_outermost(found)->works, work, count);
  vgs_work_unref(work);
  return dropped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
