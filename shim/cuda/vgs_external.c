/* Memory that a program imports as another interface's. The only descriptors that name memory here are those of
 * cuMemExportToShareableHandle, which NVIDIA's driver accepts, too. So an import is a handle of physical memory, and a
 * mapped buffer a range of addresses of its own. A wrong handle is an error here, where NVIDIA's driver crashes. */
#include "vgs_external.h"
#include "vgs_api.h"
#include "vgs_device.h"
#include "vgs_enter.h"
#include "vgs_graph_node.h"
#include "vgs_log.h"
#include "vgs_managed.h"
#include "vgw_enums.h"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct CUextMemory_st {
  CUmemGenericAllocationHandle allocation;
  uint64_t nbytes;
  struct CUextMemory_st *next;
};

struct mapping {
  CUdeviceptr address; /* the buffer that the program gets and frees */
  CUdeviceptr base;
  size_t nbytes;
  struct mapping *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUextMemory_st *imports;
static struct mapping *mappings;

/* Log a reason once for each kind of refusal. */
static CUresult refuse(const char *what, CUresult result, bool *named) {
  if (!__atomic_exchange_n(named, true, __ATOMIC_RELAXED))
    vgs_log(VGS_LOG_REASON, "%s: CUDA error %d", what, result);
  return result;
}

/* Results are an H200's (tests/gpu/answers.c): UNKNOWN for a descriptor of anything else, INVALID_VALUE for Windows'
 * handles and NvSciBuf. */
CUresult vgs_cuImportExternalMemory(CUexternalMemory *extMem_out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *d) {
  static bool named;
  CUmemGenericAllocationHandle allocation;
  if (!extMem_out || !d || d->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD || !d->size ||
      d->flags & ~(unsigned)CUDA_EXTERNAL_MEMORY_DEDICATED)
    return d && d->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD ? CUDA_ERROR_NOT_SUPPORTED
                                                                    : CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_cuMemImportFromShareableHandle(&allocation, (void *)(intptr_t)d->handle.fd, 1);
  if (result == CUDA_ERROR_INVALID_VALUE)
    return refuse(
        "memory of another interface (Vulkan, OpenGL) is not remoted, only that of cuMemExportToShareableHandle",
        CUDA_ERROR_UNKNOWN, &named);
  if (result)
    return result;
  struct CUextMemory_st *memory = malloc(sizeof *memory);
  if (!memory) {
    vgs_cuMemRelease(allocation);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  pthread_mutex_lock(&lock);
  *memory = (struct CUextMemory_st){.allocation = allocation, .nbytes = d->size, .next = imports};
  imports = memory;
  pthread_mutex_unlock(&lock);
  close(d->handle.fd); /* the import owns it */
  *extMem_out = memory;
  return CUDA_SUCCESS;
}

/* Find an import and copy its description to *found. */
static bool find(CUexternalMemory handle, struct CUextMemory_st *found) {
  pthread_mutex_lock(&lock);
  const struct CUextMemory_st *memory = imports;
  while (memory && memory != handle)
    memory = memory->next;
  if (memory)
    *found = *memory;
  pthread_mutex_unlock(&lock);
  return memory;
}

CUresult vgs_cuDestroyExternalMemory(CUexternalMemory extMem) {
  pthread_mutex_lock(&lock);
  struct CUextMemory_st **at = &imports;
  while (*at && *at != extMem)
    at = &(*at)->next;
  struct CUextMemory_st *memory = *at;
  if (memory)
    *at = memory->next;
  pthread_mutex_unlock(&lock);
  if (!memory)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_cuMemRelease(memory->allocation);
  free(memory);
  return result;
}

/* Map all of an import at new addresses, for the current context's device. */
static CUresult map(const struct CUextMemory_st *memory, CUdeviceptr *base, size_t *nbytes) {
  CUmemAllocationProp prop;
  size_t granularity;
  CUresult result = vgs_cuMemGetAllocationPropertiesFromHandle(&prop, memory->allocation);
  if (result || (result = vgs_cuMemGetAllocationGranularity(&granularity, &prop, 0)))
    return result;
  if (memory->nbytes > SIZE_MAX - granularity)
    return CUDA_ERROR_INVALID_VALUE;
  *nbytes = (memory->nbytes + granularity - 1) / granularity * granularity;
  if ((result = vgs_cuMemAddressReserve(base, *nbytes, 0, 0, 0)))
    return result;
  CUmemAccessDesc access = {.location = {.type = 1 /* device */, .id = vgs_context_entered->device}, .flags = 3};
  if ((result = vgs_cuMemMap(*base, *nbytes, 0, memory->allocation, 0))) {
    vgs_cuMemAddressFree(*base, *nbytes);
  } else if ((result = vgs_cuMemSetAccess(*base, *nbytes, &access, 1))) {
    vgs_cuMemUnmap(*base, *nbytes);
    vgs_cuMemAddressFree(*base, *nbytes);
  }
  return result;
}

CUresult vgs_cuExternalMemoryGetMappedBuffer(CUdeviceptr *devPtr, CUexternalMemory extMem,
                                             const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *d) {
  struct CUextMemory_st memory;
  if (!devPtr || !d)
    return CUDA_ERROR_INVALID_VALUE;
  if (!find(extMem, &memory))
    return CUDA_ERROR_INVALID_VALUE;
  if (!d->size || d->flags || d->size > memory.nbytes || d->offset > memory.nbytes - d->size)
    return CUDA_ERROR_INVALID_VALUE;
  struct mapping *made = malloc(sizeof *made);
  if (!made)
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = map(&memory, &made->base, &made->nbytes);
  if (result) {
    free(made);
    return result;
  }
  *devPtr = made->address = made->base + d->offset;
  pthread_mutex_lock(&lock);
  made->next = mappings;
  mappings = made;
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

CUresult vgs_external_free(CUdeviceptr address) {
  pthread_mutex_lock(&lock);
  struct mapping **at = &mappings;
  while (*at && (*at)->address != address)
    at = &(*at)->next;
  struct mapping *ended = *at;
  if (ended)
    *at = ended->next;
  pthread_mutex_unlock(&lock);
  if (!ended)
    return vgs_managed_free(address);
  CUresult result = vgs_cuMemUnmap(ended->base, ended->nbytes);
  if (!result)
    result = vgs_cuMemAddressFree(ended->base, ended->nbytes);
  free(ended);
  return result;
}

CUresult vgs_cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *mipmap, CUexternalMemory extMem,
                                                     const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *d) {
  static bool named;
  struct CUextMemory_st memory;
  if (!mipmap || !d || !d->numLevels)
    return CUDA_ERROR_INVALID_VALUE;
  return find(extMem, &memory) ? refuse("arrays in imported memory are not remoted", CUDA_ERROR_NOT_SUPPORTED, &named)
                               : CUDA_ERROR_INVALID_VALUE;
}

CUresult vgs_cuImportExternalSemaphore(CUexternalSemaphore *extSem_out, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *d) {
  static bool named;
  if (!extSem_out || !d || d->flags ||
      (d->type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD &&
       (d->type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD || d->handle.fd < 0)))
    return CUDA_ERROR_INVALID_VALUE;
  return refuse("semaphores of another interface (Vulkan) are not remoted", CUDA_ERROR_UNKNOWN, &named);
}

CUresult vgs_semaphore_node_check(CUgraphNode handle, int type) {
  const struct vgs_graph_node *node = vgs_graph_node_find(handle);
  int found = -1;
  CUresult result = node ? vgs_send_cuGraphNodeGetType(node->object.id, &found) : CUDA_ERROR_INVALID_VALUE;
  return !result && found != type ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult vgs_semaphore_node_params(CUgraphNode handle, int type, CUDA_EXT_SEM_NODE_PARAMS *params) {
  CUresult result = params ? vgs_semaphore_node_check(handle, type) : CUDA_ERROR_INVALID_VALUE;
  if (!result)
    *params = (CUDA_EXT_SEM_NODE_PARAMS){.numExtSems = 0};
  return result;
}

/* --- decompression --- */

void vgs_decompress_failed(size_t *error_index) {
  if (error_index)
    *error_index = SIZE_MAX;
}

CUresult vgs_decompress_check(size_t *error_index) {
  if (vgs_device(vgs_context_entered->device)->attributes[CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK] > 0)
    return CUDA_SUCCESS;
  if (error_index)
    *error_index = 0; /* as an H200's driver does */
  return CUDA_ERROR_NOT_SUPPORTED;
}
