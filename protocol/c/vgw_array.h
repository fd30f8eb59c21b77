/* Types of the driver's interface to arrays, textures and copies between shapes, which vgw_cuda.h includes. */
#ifndef VGW_ARRAY_H
#define VGW_ARRAY_H

#include "vgw_cuda.h"

typedef struct {
  size_t Width, Height;
  int32_t Format;
  uint32_t NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct {
  size_t Width, Height, Depth;
  int32_t Format;
  uint32_t NumChannels;
  uint32_t Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

typedef struct {
  uint32_t Width, Height;
  int32_t Format;
  uint32_t NumChannels;
} CUDA_ARRAY_DESCRIPTOR_v1;

typedef struct {
  uint32_t Width, Height, Depth;
  int32_t Format;
  uint32_t NumChannels;
  uint32_t Flags;
} CUDA_ARRAY3D_DESCRIPTOR_v1;

enum { /* CUarray_format */
       CU_AD_FORMAT_UNSIGNED_INT8 = 0x01,
       CU_AD_FORMAT_UNSIGNED_INT16 = 0x02,
       CU_AD_FORMAT_UNSIGNED_INT32 = 0x03,
       CU_AD_FORMAT_SIGNED_INT8 = 0x08,
       CU_AD_FORMAT_SIGNED_INT16 = 0x09,
       CU_AD_FORMAT_SIGNED_INT32 = 0x0a,
       CU_AD_FORMAT_HALF = 0x10,
       CU_AD_FORMAT_FLOAT = 0x20,
       CU_AD_FORMAT_UNORM_INT8X1 = 0xc0, /* then X2 and X4: the number of channels is part of the format */
       CU_AD_FORMAT_UNORM_INT16X1 = 0xc3,
       CU_AD_FORMAT_SNORM_INT8X1 = 0xc6,
       CU_AD_FORMAT_SNORM_INT16X1 = 0xc9,
       CU_AD_FORMAT_SNORM_INT16X4 = 0xcb,
};

enum { /* flags of CUDA_ARRAY3D_DESCRIPTOR */
       CUDA_ARRAY3D_LAYERED = 0x01,
       CUDA_ARRAY3D_SURFACE_LDST = 0x02,
       CUDA_ARRAY3D_CUBEMAP = 0x04,
       CUDA_ARRAY3D_TEXTURE_GATHER = 0x08,
       CUDA_ARRAY3D_SPARSE = 0x40,
       CUDA_ARRAY3D_DEFERRED_MAPPING = 0x80,
};

enum { /* CUresourcetype */
       CU_RESOURCE_TYPE_ARRAY = 0,
       CU_RESOURCE_TYPE_MIPMAPPED_ARRAY = 1,
       CU_RESOURCE_TYPE_LINEAR = 2,
       CU_RESOURCE_TYPE_PITCH2D = 3,
};

typedef struct {
  int32_t resType;
  union {
    struct {
      CUarray hArray;
    } array;
    struct {
      CUmipmappedArray hMipmappedArray;
    } mipmap;
    struct {
      CUdeviceptr devPtr;
      int32_t format;
      uint32_t numChannels;
      size_t sizeInBytes;
    } linear;
    struct {
      CUdeviceptr devPtr;
      int32_t format;
      uint32_t numChannels;
      size_t width, height, pitchInBytes;
    } pitch2D;
    int32_t reserved[32];
  } res;
  uint32_t flags;
} CUDA_RESOURCE_DESC;

enum { /* flags of CUDA_TEXTURE_DESC */
       CU_TRSF_READ_AS_INTEGER = 0x01,
       CU_TRSF_NORMALIZED_COORDINATES = 0x02,
       CU_TRSF_SRGB = 0x10,
       CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION = 0x20,
       CU_TRSF_SEAMLESS_CUBEMAP = 0x40,
};

typedef struct {
  int32_t addressMode[3], filterMode;
  uint32_t flags, maxAnisotropy;
  int32_t mipmapFilterMode;
  float mipmapLevelBias, minMipmapLevelClamp, maxMipmapLevelClamp;
  float borderColor[4];
  int32_t reserved[12];
} CUDA_TEXTURE_DESC;

typedef struct {
  float value[4];
} CUtexrefBorderColor;

typedef struct {
  int32_t format;
  size_t width, height, depth;
  uint32_t firstMipmapLevel, lastMipmapLevel, firstLayer, lastLayer;
  uint32_t reserved[16];
} CUDA_RESOURCE_VIEW_DESC;

typedef struct {
  size_t srcXInBytes, srcY;
  CUmemorytype srcMemoryType;
  const void *srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  size_t srcPitch;
  size_t dstXInBytes, dstY;
  CUmemorytype dstMemoryType;
  void *dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  size_t dstPitch;
  size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;

typedef struct {
  size_t srcXInBytes, srcY, srcZ, srcLOD;
  CUmemorytype srcMemoryType;
  const void *srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  void *reserved0;
  size_t srcPitch, srcHeight;
  size_t dstXInBytes, dstY, dstZ, dstLOD;
  CUmemorytype dstMemoryType;
  void *dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  void *reserved1;
  size_t dstPitch, dstHeight;
  size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

typedef struct {
  size_t srcXInBytes, srcY, srcZ, srcLOD;
  CUmemorytype srcMemoryType;
  const void *srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  CUcontext srcContext;
  size_t srcPitch, srcHeight;
  size_t dstXInBytes, dstY, dstZ, dstLOD;
  CUmemorytype dstMemoryType;
  void *dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  CUcontext dstContext;
  size_t dstPitch, dstHeight;
  size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D_PEER;

typedef struct {
  int32_t srcAccessOrder;
  CUmemLocation srcLocHint, dstLocHint;
  uint32_t flags;
} CUmemcpyAttributes;

/* One side of a copy in a batch. Rows and layers count elements, which are bytes if neither side is an array. */
typedef struct {
  int32_t type;
  union {
    struct {
      CUdeviceptr ptr;
      size_t rowLength, layerHeight;
      CUmemLocation locHint;
    } ptr;
    struct {
      CUarray array;
      struct {
        size_t x, y, z;
      } offset;
    } array;
  } op;
} CUmemcpy3DOperand;
enum { CU_MEMCPY_OPERAND_TYPE_POINTER = 1, CU_MEMCPY_OPERAND_TYPE_ARRAY = 2 };

typedef struct {
  CUmemcpy3DOperand src, dst;
  struct {
    size_t width, height, depth;
  } extent;
  int32_t srcAccessOrder;
  uint32_t flags;
} CUDA_MEMCPY3D_BATCH_OP;

/* Arrays whose memory is mapped later. */
typedef struct {
  struct {
    uint32_t width, height, depth;
  } tileExtent;
  uint32_t miptailFirstLevel;
  uint64_t miptailSize;
  uint32_t flags;
  uint32_t reserved[4];
} CUDA_ARRAY_SPARSE_PROPERTIES;

typedef struct {
  size_t size, alignment;
  uint32_t reserved[4];
} CUDA_ARRAY_MEMORY_REQUIREMENTS;

typedef struct {
  int32_t resourceType; /* CUresourcetype */
  union {
    CUmipmappedArray mipmap;
    CUarray array;
  } resource;
  int32_t subresourceType;
  union {
    struct {
      uint32_t level, layer, offsetX, offsetY, offsetZ, extentWidth, extentHeight, extentDepth;
    } sparseLevel;
    struct {
      uint32_t layer;
      uint64_t offset, size;
    } miptail;
  } subresource;
  int32_t memOperationType, memHandleType;
  CUmemGenericAllocationHandle memHandle;
  uint64_t offset;
  uint32_t deviceBitMask, flags;
  uint32_t reserved[2];
} CUarrayMapInfo;

_Static_assert(sizeof(CUDA_ARRAY_SPARSE_PROPERTIES) == 48, "sparse array");
_Static_assert(sizeof(CUDA_ARRAY_MEMORY_REQUIREMENTS) == 32, "memory of an array");
_Static_assert(sizeof(CUarrayMapInfo) == 96, "mapping of an array");
_Static_assert(sizeof(CUDA_MEMCPY2D) == 128, "2-D copy");
_Static_assert(sizeof(CUDA_MEMCPY3D) == 200, "3-D copy");
_Static_assert(sizeof(CUmemcpyAttributes) == 24, "attributes of copies");
_Static_assert(sizeof(CUmemcpy3DOperand) == 40, "side of a copy");
_Static_assert(sizeof(CUDA_MEMCPY3D_BATCH_OP) == 112, "copy of a batch");
_Static_assert(sizeof(CUDA_ARRAY3D_DESCRIPTOR) == 40, "array");
_Static_assert(sizeof(CUDA_RESOURCE_DESC) == 144, "resource");
_Static_assert(sizeof(CUDA_TEXTURE_DESC) == 104, "texture");
_Static_assert(sizeof(CUDA_RESOURCE_VIEW_DESC) == 112, "view");

#endif
