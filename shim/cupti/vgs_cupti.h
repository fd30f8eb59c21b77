/* Types of CUPTI's functions, and the numbers of its enumerations that the library uses (facts of its public headers).
 */
#ifndef VGS_CUPTI_H
#define VGS_CUPTI_H

#include "vgw_cuda.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct vgs_cupti_subscriber *CUpti_SubscriberHandle;

typedef void (*vgs_cupti_request)(uint8_t **buffer, size_t *size, size_t *most_records);
typedef void (*vgs_cupti_complete)(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);
typedef void (*vgs_cupti_callback)(void *userdata, uint32_t domain, uint32_t id, const void *data);

/* CUpti_CallbackData of the API domains. */
struct vgs_cupti_callback_data {
  uint32_t site; /* VGS_SITE_* */
  const char *function;
  const void *params;
  void *result;
  const char *symbol; /* a launch's kernel; else NULL */
  CUcontext context;
  uint32_t context_id;
  uint64_t *correlation_data;
  uint32_t correlation;
};
enum { VGS_SITE_ENTER = 0, VGS_SITE_EXIT = 1 };
_Static_assert(sizeof(struct vgs_cupti_callback_data) == 72, "CUpti_CallbackData");

enum vgs_cupti_domain { VGS_DOMAIN_DRIVER = 1, VGS_DOMAIN_RUNTIME, VGS_DOMAIN_RESOURCE, VGS_DOMAIN_SYNCHRONIZE };
enum { VGS_DOMAIN_NVTX = 5, VGS_DOMAIN_STATE = 6, VGS_DOMAIN_COUNT = 7 };

enum vgs_cupti_kind {
  VGS_KIND_MEMCPY = 1,
  VGS_KIND_MEMSET = 2,
  VGS_KIND_KERNEL = 3,
  VGS_KIND_DRIVER = 4,
  VGS_KIND_RUNTIME = 5,
  VGS_KIND_CONCURRENT_KERNEL = 10,
  VGS_KIND_OVERHEAD = 17,
  VGS_KIND_MEMCPY2 = 22,
  VGS_KIND_CUDA_EVENT = 36,
  VGS_KIND_SYNCHRONIZATION = 38,
  VGS_KIND_EXTERNAL_CORRELATION = 39,
  VGS_KIND_MEMORY = 45,
  VGS_KIND_MEMORY2 = 49,
  VGS_KIND_MEMORY_POOL = 50,
  VGS_KIND_GRAPH_TRACE = 51,
  VGS_KIND_COUNT = 64, /* more than any kind of 13.5 */
};

enum { VGS_SYNC_EVENT = 1, VGS_SYNC_WAIT = 2, VGS_SYNC_STREAM = 3, VGS_SYNC_CONTEXT = 4 };
enum { VGS_COPY_HTOD = 1, VGS_COPY_DTOH = 2, VGS_COPY_DTOD = 8, VGS_COPY_HTOH = 9, VGS_COPY_PTOP = 10 };
enum {
  VGS_MEMORY_KIND_PAGEABLE = 1,
  VGS_MEMORY_KIND_PINNED = 2,
  VGS_MEMORY_KIND_DEVICE = 3,
  VGS_MEMORY_KIND_MANAGED = 5,
};
enum { VGS_MEMORY_ALLOCATION = 1, VGS_MEMORY_RELEASE = 2 };
enum { VGS_POOL_LOCAL = 1, VGS_POOL_IMPORTED = 2 };
enum { VGS_POOL_CREATED = 1, VGS_POOL_DESTROYED = 2, VGS_POOL_TRIMMED = 3 };
enum { VGS_FLAG_ASYNC = 1, VGS_FLUSH_FORCED = 1 };
enum { VGS_OVERHEAD_FLUSH = 1 << 16, VGS_OBJECT_PROCESS = 1 };
enum { VGS_EXTERNAL_KINDS = 8 };

#endif
