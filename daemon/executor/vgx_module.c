/* Modules and libraries loaded from images, and the description of kernels. */
#include <stdlib.h>

#include "vgx_custom.h"
#include "vgx_image.h"
#include "vgx_memory.h"
#include "vgx_quota.h"
#include "vgx_reason.h"
#include "vgx_session.h"

#define MAX_PARAMS 4096

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
    result = vgx_image_acquire(s, req->first + count, &taken[count]);
    if (result != CUDA_SUCCESS)
      break;
    data[count] = taken[count].data;
    nbytes[count] = taken[count].total;
  }
  void *linked = NULL;
  uint64_t linked_nbytes = 0;
  uint64_t begun_ns;
  if (result == CUDA_SUCCESS && (result = vgx_compile_begin(&begun_ns)) == CUDA_SUCCESS) {
    result = s->backend->link(0, data, nbytes, count, req->result ? &linked : NULL, &linked_nbytes);
    vgx_compile_end(begun_ns);
  }
  while (count)
    vgx_image_release(s, &taken[--count]);
  if (result != CUDA_SUCCESS || !req->result)
    return result;
  if (!vgx_image_add(s, req->result, linked, linked_nbytes)) {
    free(linked);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  rep->nbytes = linked_nbytes;
  return CUDA_SUCCESS;
}

CUresult vgx_vgpuKernelDescribe(struct vgx_session *s, const struct vgw_req_vgpuKernelDescribe *req,
                                CUfunction function, void *description, uint64_t *description_nbytes) {
  (void)req;
  struct vgw_kernel_description *d = description;
  struct vgw_param *params = (struct vgw_param *)(d + 1);
  if (*description_nbytes < sizeof *d)
    return CUDA_ERROR_INVALID_VALUE;
  if (!s->backend->cuFuncGetParamInfo)
    return vgx_not_offered(s, "cuFuncGetParamInfo");
  uint64_t room = (*description_nbytes - sizeof *d) / sizeof *params;
  memset(d, 0, sizeof *d);
  for (int i = 0; i < VGW_FUNC_ATTRIBUTE_COUNT; i++)
    if (s->backend->cuFuncGetAttribute(&d->attributes[i], i, function) != CUDA_SUCCESS)
      d->attributes[i] = INT32_MIN;
  for (;; d->param_count++) {
    size_t offset, nbytes;
    CUresult result = s->backend->cuFuncGetParamInfo(function, d->param_count, &offset, &nbytes);
    if (result ==
        CUDA_ERROR_NOT_FOUND) /* from vgx_cuda_params.c: it cannot tell whether the kernel has this parameter */
      vgx_reason(s, result, "neither the host's driver nor the image tells the layout of a kernel's parameters");
    if (result == CUDA_ERROR_NOT_FOUND)
      return result;
    if (result != CUDA_SUCCESS)
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

CUresult vgx_vgpuLibraryManaged(struct vgx_session *s, const struct vgw_req_vgpuLibraryManaged *req, CUlibrary library,
                                const char *name, struct vgw_rep_vgpuLibraryManaged *rep) {
  char text[VGX_TEXT_NBYTES];
  uint64_t placed = 0, nbytes = 0;
  if (!vgx_text(text, name, req->name_nbytes))
    return CUDA_ERROR_NOT_FOUND;
  if (!s->backend->managed_variable)
    return vgx_not_offered(s, "cuLibraryGetManaged");
  CUresult result = s->backend->managed_variable(library, text, 0, &placed, &nbytes);
  if (result == CUDA_SUCCESS && req->address) {
    if (!vgx_is_pinned(s, req->address, nbytes))
      return vgx_violation(s, "managed variable outside pinned memory");
    result = s->backend->managed_variable(library, text, req->address, &placed, &nbytes);
  }
  rep->placed = placed;
  rep->nbytes = nbytes;
  return result;
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
  const struct vgx_backend *driver = s->backend; /* before 12.4 it lacks these */
  if (library ? !driver->cuLibraryGetKernelCount || !driver->cuLibraryEnumerateKernels || !driver->cuKernelGetName
              : !driver->cuModuleGetFunctionCount || !driver->cuModuleEnumerateFunctions || !driver->cuFuncGetName)
    return vgx_not_offered(s, library ? "cuLibraryEnumerateKernels" : "cuModuleEnumerateFunctions");
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
