/* Types of the driver's interface to memory and semaphores of other interfaces, to decompression, and to launches on
 * several devices, which vgw_cuda.h includes. */
#ifndef VGW_EXTERNAL_H
#define VGW_EXTERNAL_H

#include "vgw_array.h"

typedef struct CUextMemory_st *CUexternalMemory;
typedef struct CUextSemaphore_st *CUexternalSemaphore;

enum { CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD = 1, CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD = 9 };
enum { CUDA_EXTERNAL_MEMORY_DEDICATED = 1 };

typedef struct {
  int32_t type;
  union {
    int32_t fd;
    struct {
      void *handle;
      const void *name;
    } win32;
    const void *nvSciBufObject;
  } handle;
  uint64_t size;
  uint32_t flags;
  uint32_t reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;

typedef struct {
  uint64_t offset, size;
  uint32_t flags;
  uint32_t reserved[16];
} CUDA_EXTERNAL_MEMORY_BUFFER_DESC;

typedef struct {
  uint64_t offset;
  CUDA_ARRAY3D_DESCRIPTOR arrayDesc;
  uint32_t numLevels;
  uint32_t reserved[16];
} CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC;

enum { CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD = 1, CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD = 9 };

typedef struct {
  int32_t type;
  union {
    int32_t fd;
    struct {
      void *handle;
      const void *name;
    } win32;
    const void *nvSciSyncObj;
  } handle;
  uint32_t flags;
  uint32_t reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC;

typedef struct { /* nodes that signal, or wait for, semaphores */
  CUexternalSemaphore *extSemArray;
  const void *paramsArray;
  uint32_t numExtSems;
} CUDA_EXT_SEM_NODE_PARAMS;

typedef struct {
  size_t srcNumBytes, dstNumBytes;
  uint32_t *dstActBytes; /* in device memory, as src and dst */
  const void *src;
  void *dst;
  int32_t algo;
  uint8_t padding[20];
} CUmemDecompressParams;

enum { /* flags of cuLaunchCooperativeKernelMultiDevice */
       CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC = 1,
       CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC = 2,
};

typedef struct {
  CUfunction function;
  uint32_t gridDimX, gridDimY, gridDimZ;
  uint32_t blockDimX, blockDimY, blockDimZ;
  uint32_t sharedMemBytes;
  CUstream hStream;
  void **kernelParams;
} CUDA_LAUNCH_PARAMS;

_Static_assert(sizeof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC) == 104, "external memory");
_Static_assert(sizeof(CUDA_EXTERNAL_MEMORY_BUFFER_DESC) == 88, "external buffer");
_Static_assert(sizeof(CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC) == 120, "external array");
_Static_assert(sizeof(CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC) == 96, "external semaphore");
_Static_assert(sizeof(CUmemDecompressParams) == 64, "decompression");
_Static_assert(sizeof(CUDA_LAUNCH_PARAMS) == 56, "launch on one of several devices");

#endif
