/* Types of the driver's interface to graphs, which vgw_cuda.h includes. */
#ifndef VGW_GRAPH_H
#define VGW_GRAPH_H

#include "vgw_cuda.h"

/* CUDA_KERNEL_NODE_PARAMS_v2: `kern` and `ctx` (NULL: the current one) are used only when `func` is NULL. */
typedef struct {
  CUfunction func;
  uint32_t gridDimX, gridDimY, gridDimZ;
  uint32_t blockDimX, blockDimY, blockDimZ;
  uint32_t sharedMemBytes;
  void **kernelParams;
  void **extra;
  CUkernel kern;
  CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS_v2;

typedef struct {
  CUfunction func;
  uint32_t gridDimX, gridDimY, gridDimZ;
  uint32_t blockDimX, blockDimY, blockDimZ;
  uint32_t sharedMemBytes;
  void **kernelParams;
  void **extra;
} CUDA_KERNEL_NODE_PARAMS_v1;

enum {
  CU_GRAPH_EXEC_UPDATE_SUCCESS = 0,
  CU_GRAPH_EXEC_UPDATE_ERROR = 1,
  CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED = 2,
  CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED = 3,
  CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED = 5,
  CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED = 6,
  CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE = 7,
  CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED = 8,
};

typedef struct {
  int32_t result;
  CUgraphNode errorNode, errorFromNode;
} CUgraphExecUpdateResultInfo;

typedef struct {
  CUdeviceptr dst;
  size_t pitch; /* bytes; unused with one row */
  uint32_t value, elementSize;
  size_t width, height; /* elements, rows */
} CUDA_MEMSET_NODE_PARAMS;

typedef void (*CUhostFn)(void *userData);

typedef struct {
  CUhostFn fn;
  void *userData;
} CUDA_HOST_NODE_PARAMS;
typedef struct {
  uint8_t from_port, to_port, type, reserved[5];
} CUgraphEdgeData;

typedef struct {
  CUmemPoolProps poolProps;
  const CUmemAccessDesc *accessDescs;
  size_t accessDescCount;
  size_t bytesize;
  CUdeviceptr dptr; /* a result */
} CUDA_MEM_ALLOC_NODE_PARAMS;

typedef struct {
  CUcontext ctx;
  uint32_t count;
  CUstreamBatchMemOpParams *paramArray;
  uint32_t flags;
} CUDA_BATCH_MEM_OP_NODE_PARAMS;

typedef uint64_t CUgraphConditionalHandle;
enum { CU_GRAPH_COND_TYPE_IF = 0, CU_GRAPH_COND_TYPE_WHILE = 1, CU_GRAPH_COND_TYPE_SWITCH = 2 };

typedef struct {
  CUgraphConditionalHandle handle;
  int32_t type;
  uint32_t size;        /* of phGraph_out */
  CUgraph *phGraph_out; /* a result: an array that lives as long as the node */
  CUcontext ctx;
} CUDA_CONDITIONAL_NODE_PARAMS;

enum { /* CUgraphNodeType */
       CU_GRAPH_NODE_TYPE_KERNEL = 0,
       CU_GRAPH_NODE_TYPE_MEMCPY = 1,
       CU_GRAPH_NODE_TYPE_MEMSET = 2,
       CU_GRAPH_NODE_TYPE_HOST = 3,
       CU_GRAPH_NODE_TYPE_GRAPH = 4,
       CU_GRAPH_NODE_TYPE_EMPTY = 5,
       CU_GRAPH_NODE_TYPE_WAIT_EVENT = 6,
       CU_GRAPH_NODE_TYPE_EVENT_RECORD = 7,
       CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL = 8,
       CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT = 9,
       CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10,
       CU_GRAPH_NODE_TYPE_MEM_FREE = 11,
       CU_GRAPH_NODE_TYPE_BATCH_MEM_OP = 12,
       CU_GRAPH_NODE_TYPE_CONDITIONAL = 13,
};

typedef struct {
  int32_t type; /* CUgraphNodeType */
  int32_t reserved0[3];
  union {
    int64_t reserved1[29];
    CUDA_KERNEL_NODE_PARAMS_v2 kernel;
    struct {
      int32_t flags, reserved;
      CUcontext copyCtx;
      CUDA_MEMCPY3D copyParams;
    } memcpy;
    struct {
      CUDA_MEMSET_NODE_PARAMS fill;
      CUcontext ctx;
    } memset;
    CUDA_HOST_NODE_PARAMS host;
    struct {
      CUgraph graph;
      int32_t ownership; /* 0: the node holds a copy of the graph; 1: the graph itself */
    } graph;
    CUevent event;
    struct {
      void *semaphores;
      const void *params;
      uint32_t count;
      CUcontext ctx;
    } semaphores;
    CUDA_MEM_ALLOC_NODE_PARAMS alloc;
    struct {
      CUdeviceptr dptr;
    } free;
    CUDA_BATCH_MEM_OP_NODE_PARAMS memOp;
    CUDA_CONDITIONAL_NODE_PARAMS conditional;
  };
  int64_t reserved2;
} CUgraphNodeParams;

_Static_assert(sizeof(CUDA_KERNEL_NODE_PARAMS_v1) == 56, "kernel node");
_Static_assert(sizeof(CUDA_KERNEL_NODE_PARAMS_v2) == 72, "kernel node");
_Static_assert(sizeof(CUgraphExecUpdateResultInfo) == 24, "graph update");
_Static_assert(sizeof(CUDA_MEMSET_NODE_PARAMS) == 40, "memset node");
_Static_assert(sizeof(CUgraphNodeParams) == 256, "node of any type");
_Static_assert(sizeof(CUDA_MEM_ALLOC_NODE_PARAMS) == 120, "allocation node");
_Static_assert(sizeof(CUDA_BATCH_MEM_OP_NODE_PARAMS) == 32, "node of operations on words");
_Static_assert(sizeof(CUDA_CONDITIONAL_NODE_PARAMS) == 32, "conditional node");
_Static_assert(sizeof(CUgraphEdgeData) == 8, "edge");

#endif
