/* What is loaded from images, and the description of kernels. */
#include <stdlib.h>

#include "vgx_custom.h"
#include "vgx_session.h"

#define MAX_PARAMS 4096

CUresult vgx_cuModuleLoadData(struct vgx_session *s, const struct vgw_req_cuModuleLoadData *req) {
  struct vgx_image image;
  CUmodule module = NULL;
  if (!vgx_handle_reserve(s, VGW_KIND_MODULE, req->module))
    return vgx_violation(s, "module taken");
  CUresult result = vgx_image_take(s, req->image, &image);
  if (result == CUDA_SUCCESS) {
    result = s->backend->load_module(&module, image.data, image.total);
    vgx_image_put(s, &image);
  }
  vgx_handle_set(s, VGW_KIND_MODULE, req->module, result == CUDA_SUCCESS ? module : NULL);
  return result;
}

CUresult vgx_cuLibraryLoadData(struct vgx_session *s, const struct vgw_req_cuLibraryLoadData *req) {
  struct vgx_image image;
  CUlibrary library = NULL;
  if (!vgx_handle_reserve(s, VGW_KIND_LIBRARY, req->library))
    return vgx_violation(s, "library taken");
  CUresult result = vgx_image_take(s, req->image, &image);
  if (result == CUDA_SUCCESS) {
    result = s->backend->load_library(&library, image.data, image.total);
    vgx_image_put(s, &image);
  }
  vgx_handle_set(s, VGW_KIND_LIBRARY, req->library, result == CUDA_SUCCESS ? library : NULL);
  return result;
}

CUresult vgx_vgpuLink(struct vgx_session *s, const struct vgw_req_vgpuLink *req, struct vgw_rep_vgpuLink *rep) {
  enum { MAX_INPUTS = 256 };
  if (!s->backend->link)
    return vgx_not_offered(s, "cuLink");
  if (req->count == 0 || req->count > MAX_INPUTS || req->first > UINT32_MAX - req->count)
    return CUDA_ERROR_INVALID_VALUE;
  struct vgx_image taken[MAX_INPUTS];
  const void *data[MAX_INPUTS];
  uint64_t nbytes[MAX_INPUTS];
  uint32_t count = 0;
  CUresult result = CUDA_SUCCESS;
  for (; count < req->count && result == CUDA_SUCCESS; count++) {
    result = vgx_image_take(s, req->first + count, &taken[count]);
    if (result != CUDA_SUCCESS)
      break;
    data[count] = taken[count].data;
    nbytes[count] = taken[count].total;
  }
  void *linked = NULL;
  uint64_t linked_nbytes = 0;
  if (result == CUDA_SUCCESS)
    result = s->backend->link(0, data, nbytes, count, &linked, &linked_nbytes);
  while (count)
    vgx_image_put(s, &taken[--count]);
  if (result != CUDA_SUCCESS)
    return result;
  if (!vgx_image_add(s, req->result, linked, linked_nbytes)) {
    free(linked);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  rep->nbytes = linked_nbytes;
  return CUDA_SUCCESS;
}

CUresult vgx_function(struct vgx_session *s, uint32_t kind, uint32_t object, CUfunction *function) {
  void *found;
  if (kind != VGW_KIND_FUNCTION && kind != VGW_KIND_KERNEL)
    return vgx_violation(s, "kind of kernel");
  if (object == 0)
    return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = vgx_handle(s, kind, object, &found);
  if (result == CUDA_SUCCESS)
    *function = found; /* the driver takes a CUkernel wherever it takes a CUfunction to launch */
  return result;
}

/* As above, but the function of the current context, for calls that take no CUkernel. */
static CUresult loaded_function(struct vgx_session *s, uint32_t kind, uint32_t object, CUfunction *function) {
  CUresult result = vgx_function(s, kind, object, function);
  if (result == CUDA_SUCCESS && kind == VGW_KIND_KERNEL)
    result = s->backend->cuKernelGetFunction(function, (CUkernel)*function);
  return result;
}

CUresult vgx_vgpuKernelDescribe(struct vgx_session *s, const struct vgw_req_vgpuKernelDescribe *req, void *description,
                                uint64_t *description_nbytes) {
  struct vgw_kernel_description *d = description;
  struct vgw_param *params = (struct vgw_param *)(d + 1);
  CUfunction function = NULL;
  if (*description_nbytes < sizeof *d)
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t room = (*description_nbytes - sizeof *d) / sizeof *params;
  CUresult result = loaded_function(s, req->kind, req->object, &function);
  if (result != CUDA_SUCCESS)
    return result;
  memset(d, 0, sizeof *d);
  for (int i = 0; i < VGW_FUNC_ATTRIBUTE_COUNT; i++)
    if (s->backend->cuFuncGetAttribute(&d->attributes[i], i, function) != CUDA_SUCCESS)
      d->attributes[i] = INT32_MIN;
  for (;; d->param_count++) {
    size_t offset, nbytes;
    if (s->backend->cuFuncGetParamInfo(function, d->param_count, &offset, &nbytes) != CUDA_SUCCESS)
      break;
    if (d->param_count >= room || d->param_count >= MAX_PARAMS)
      return CUDA_ERROR_INVALID_VALUE;
    params[d->param_count] = (struct vgw_param){(uint32_t)offset, (uint32_t)nbytes};
    if (offset + nbytes > d->param_nbytes)
      d->param_nbytes = (uint32_t)(offset + nbytes);
  }
  *description_nbytes = sizeof *d + d->param_count * sizeof *params;
  return CUDA_SUCCESS;
}

CUresult vgx_vgpuKernelName(struct vgx_session *s, const struct vgw_req_vgpuKernelName *req, void *name,
                            uint64_t *name_nbytes) {
  void *object;
  uint32_t count = 0;
  if (req->kind != VGW_KIND_MODULE && req->kind != VGW_KIND_LIBRARY)
    return vgx_violation(s, "kind of container");
  CUresult result = vgx_handle(s, req->kind, req->object, &object);
  if (result != CUDA_SUCCESS)
    return result;
  bool library = req->kind == VGW_KIND_LIBRARY;
  if (!object)
    return CUDA_ERROR_INVALID_HANDLE;
  result = library ? s->backend->cuLibraryGetKernelCount(&count, object)
                   : s->backend->cuModuleGetFunctionCount(&count, object);
  if (result != CUDA_SUCCESS)
    return result;
  if (req->index >= count)
    return CUDA_ERROR_INVALID_VALUE;
  void **all = calloc(count, sizeof *all);
  if (!all)
    return CUDA_ERROR_OUT_OF_MEMORY;
  const char *text = NULL;
  result = library ? s->backend->cuLibraryEnumerateKernels((CUkernel *)all, count, object)
                   : s->backend->cuModuleEnumerateFunctions((CUfunction *)all, count, object);
  if (result == CUDA_SUCCESS)
    result = library ? s->backend->cuKernelGetName(&text, all[req->index])
                     : s->backend->cuFuncGetName(&text, all[req->index]);
  free(all);
  if (result != CUDA_SUCCESS)
    return result;
  uint64_t nbytes = strlen(text);
  if (nbytes > *name_nbytes)
    return CUDA_ERROR_INVALID_VALUE;
  memcpy(name, text, nbytes);
  *name_nbytes = nbytes;
  return CUDA_SUCCESS;
}

CUresult vgx_cuFuncSetAttribute(struct vgx_session *s, const struct vgw_req_cuFuncSetAttribute *req) {
  CUfunction function = NULL;
  CUresult result = loaded_function(s, req->kind, req->object, &function);
  return result == CUDA_SUCCESS ? s->backend->cuFuncSetAttribute(function, req->attrib, req->value) : result;
}

CUresult vgx_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    struct vgx_session *s, const struct vgw_req_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags *req,
    struct vgw_rep_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags *rep) {
  CUfunction function = NULL;
  CUresult result = loaded_function(s, req->kind, req->object, &function);
  if (result != CUDA_SUCCESS)
    return result;
  if (!s->backend->cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)
    return vgx_not_offered(s, "occupancy");
  return s->backend->cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&rep->numBlocks, function, req->blockSize,
                                                                          req->dynamicSMemSize, req->flags);
}

CUresult vgx_cuOccupancyAvailableDynamicSMemPerBlock(struct vgx_session *s,
                                                     const struct vgw_req_cuOccupancyAvailableDynamicSMemPerBlock *req,
                                                     struct vgw_rep_cuOccupancyAvailableDynamicSMemPerBlock *rep) {
  CUfunction function = NULL;
  CUresult result = loaded_function(s, req->kind, req->object, &function);
  if (result != CUDA_SUCCESS)
    return result;
  if (!s->backend->cuOccupancyAvailableDynamicSMemPerBlock)
    return vgx_not_offered(s, "occupancy");
  size_t nbytes = 0;
  result = s->backend->cuOccupancyAvailableDynamicSMemPerBlock(&nbytes, function, req->numBlocks, req->blockSize);
  rep->dynamicSmemSize = nbytes;
  return result;
}
