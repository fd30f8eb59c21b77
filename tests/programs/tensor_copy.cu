// Tensor maps: loads of boxes into shared memory with each swizzle, beyond the tensor's edges, with strides; stores and
// reductions to the tensor; a multicast to the blocks of a cluster; a map that a kernel makes; tensor maps that must be
// refused.
#include <cuda.h>

#include "vgt_check.h"

constexpr int BYTES = 16384;

#if __CUDA_ARCH__ >= 900
__device__ static unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ static void wait_for(unsigned barrier) {
  unsigned done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier)
                 : "memory");
}
#endif

// Loads a box and copies it to `out` as it lies in shared memory, byte by byte.
__global__ void load(const __grid_constant__ CUtensorMap map, int rank, int x, int y, int z, unsigned bytes,
                     unsigned char *out) {
#if __CUDA_ARCH__ >= 900
  __shared__ alignas(1024) unsigned char box[BYTES];
  __shared__ alignas(8) unsigned long long barrier;
  unsigned to = shared_address(box), at = shared_address(&barrier);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at));
    asm volatile("fence.mbarrier_init.release.cluster;");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes));
    if (rank == 1)
      asm volatile(
          "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2}], [%3];" ::
              "r"(to),
          "l"(&map), "r"(x), "r"(at)
          : "memory");
    else if (rank == 2)
      asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
                   "%3}], [%4];" ::"r"(to),
                   "l"(&map), "r"(x), "r"(y), "r"(at)
                   : "memory");
    else
      asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
                   "%3, %4}], [%5];" ::"r"(to),
                   "l"(&map), "r"(x), "r"(y), "r"(z), "r"(at)
                   : "memory");
  }
  __syncthreads();
  wait_for(at);
  for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x)
    out[i] = box[i];
#endif
}

// Stores a box of consecutive numbers to the tensor; with `add`, adds them to the tensor's elements. A box begins
// at a multiple of 16 bytes in its row, and one that is written not before it: anything else was an illegal instruction
// on an H200.
__global__ void store(const __grid_constant__ CUtensorMap map, int x, int y, int count, bool add) {
#if __CUDA_ARCH__ >= 900
  __shared__ alignas(128) float box[BYTES / 4];
  for (int i = threadIdx.x; i < count; i += blockDim.x)
    box[i] = 1000 + i;
  asm volatile("fence.proxy.async.shared::cta;");
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned from = shared_address(box);
    if (add)
      asm volatile(
          "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
          "r"(x), "r"(y), "r"(from)
          : "memory");
    else
      asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
                   "r"(x), "r"(y), "r"(from)
                   : "memory");
    asm volatile("cp.async.bulk.commit_group;");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
#endif
}

// Rank 0 loads for both blocks of its cluster.
__global__ void __cluster_dims__(2, 1, 1)
    multicast(const __grid_constant__ CUtensorMap map, unsigned bytes, float *out) {
#if __CUDA_ARCH__ >= 900
  __shared__ alignas(128) float box[BYTES / 4];
  __shared__ alignas(8) unsigned long long barrier;
  unsigned to = shared_address(box), at = shared_address(&barrier), rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at));
    asm volatile("fence.mbarrier_init.release.cluster;");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes));
  }
  asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
  if (rank == 0 && threadIdx.x == 0)
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %2}], [%3], %4;" ::"r"(to),
                 "l"(&map), "r"(0), "r"(at), "h"((unsigned short)3)
                 : "memory");
  wait_for(at);
  for (unsigned i = threadIdx.x; i < bytes / 4; i += blockDim.x)
    out[blockIdx.x * (bytes / 4) + i] = box[i];
  asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
#endif
}

// Makes a map of a matrix of floats out of zeroes, as Triton does, and loads a box by it.
__global__ void make_and_load(CUtensorMap *map, const float *data, int columns, int rows, int x, int y, float *out) {
#if __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int WIDTH = 20, HEIGHT = 12;
  __shared__ alignas(128) unsigned made[32];
  __shared__ alignas(128) float box[WIDTH * HEIGHT];
  __shared__ alignas(8) unsigned long long barrier;
  unsigned to = shared_address(box), at = shared_address(&barrier), here = shared_address(made);
  made[threadIdx.x] = 0;
  __syncwarp();
  if (threadIdx.x == 0) {
    asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(here), "l"(data));
    asm volatile("tensormap.replace.tile.rank.shared::cta.b1024.b32 [%0], 1;" ::"r"(here));
    asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(here), "r"(WIDTH));
    asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(here), "r"(HEIGHT));
    asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(here), "r"(columns));
    asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(here), "r"(rows));
    asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], 0, %1;" ::"r"(here),
                 "l"(columns * 4ull));
    asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 0, 1;" ::"r"(here));
    asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 1, 1;" ::"r"(here));
    asm volatile("tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%0], 7;" ::"r"(here));
    asm volatile("tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%0], 0;" ::"r"(here));
    asm volatile("tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%0], 0;" ::"r"(here));
    asm volatile("tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%0], 0;" ::"r"(here));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at));
    asm volatile("fence.mbarrier_init.release.cluster;");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(WIDTH * HEIGHT * 4));
  }
  __syncwarp();
  asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], "
               "128;" ::"l"(map),
               "r"(here)
               : "memory");
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
  if (threadIdx.x == 0)
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
                 "%3}], [%4];" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(at)
                 : "memory");
  wait_for(at);
  for (unsigned i = threadIdx.x; i < WIDTH * HEIGHT; i += blockDim.x)
    out[i] = box[i];
#endif
}

typedef CUresult (*Encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                           const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                           CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
static Encode encode;

static CUresult describe(CUtensorMap *map, void *data, int rank, const cuuint64_t *dims, const cuuint32_t *box,
                         const cuuint32_t *step, int swizzle) {
  cuuint64_t strides[2] = {dims[0] * 4, dims[0] * 4 * (rank > 2 ? dims[1] : 1)};
  return encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, rank, data, dims, strides, box, step,
                CU_TENSOR_MAP_INTERLEAVE_NONE, (CUtensorMapSwizzle)swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// What a load must leave in shared memory.
static std::vector<float> expected(const std::vector<float> &data, const cuuint64_t *dims, int rank,
                                   const cuuint32_t *box, const cuuint32_t *step, const int *start, int swizzle) {
  int count[3], nbytes = 4;
  for (int i = 0; i < 3; i++) {
    count[i] = i < rank ? (int)((box[i] + step[i] - 1) / step[i]) : 1;
    nbytes *= count[i];
  }
  std::vector<float> image(nbytes / 4);
  int at = 0;
  for (int z = 0; z < count[2]; z++)
    for (int y = 0; y < count[1]; y++)
      for (int x = 0; x < count[0]; x++, at += 4) {
        long long place[3] = {start[0] + x, rank > 1 ? start[1] + y * (int)step[1] : 0,
                              rank > 2 ? start[2] + z * (int)step[2] : 0};
        bool inside = true;
        for (int i = 0; i < rank; i++)
          inside &= place[i] >= 0 && place[i] < (long long)dims[i];
        int crossed = at ^ ((at >> 7 & ((1 << swizzle) - 1)) << 4);
        image[crossed / 4] = inside ? data[(place[2] * (rank > 1 ? dims[1] : 1) + place[1]) * dims[0] + place[0]] : 0;
      }
  return image;
}

static int chosen, number; // `chosen`: run this case alone, as a fault in another case ends the program

static void check_load(const std::vector<float> &data, float *device, unsigned char *out, int rank,
                       const cuuint64_t *dims, const cuuint32_t *box, const cuuint32_t *step, const int *start,
                       int swizzle) {
  CUtensorMap map;
  if (++number != chosen && chosen)
    return;
  EXPECT(describe(&map, device, rank, dims, box, step, swizzle) == CUDA_SUCCESS,
         "tensor_copy: map of rank %d, swizzle %d", rank, swizzle);
  std::vector<float> wanted = expected(data, dims, rank, box, step, start, swizzle);
  load<<<1, 64>>>(map, rank, start[0], start[1], start[2], (unsigned)wanted.size() * 4, out);
  cudaError_t error = cudaDeviceSynchronize();
  EXPECT(!error, "tensor_copy: case %d: rank %d, swizzle %d, from %d %d %d, steps %u %u: %s", number, rank, swizzle,
         start[0], start[1], start[2], step[1], step[2], cudaGetErrorName(error));
  std::vector<float> got = vgt_download((float *)out, wanted.size());
  for (size_t i = 0; i < wanted.size(); i++)
    EXPECT(got[i] == wanted[i], "tensor_copy: rank %d, swizzle %d: word %zu is %g instead of %g", rank, swizzle, i,
           got[i], wanted[i]);
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 1);
  chosen = argc > 2 ? args.size : 0;
  cudaDriverEntryPointQueryResult found;
  CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode, 12000, cudaEnableDefault, &found));
  EXPECT(found == cudaDriverEntryPointSuccess && encode, "tensor_copy: no cuTensorMapEncodeTiled");
  const cuuint64_t dims[3] = {40, 30, 6};
  std::vector<float> data(40 * 30 * 6);
  for (size_t i = 0; i < data.size(); i++)
    data[i] = (float)(i + args.seed);
  float *device = vgt_upload(data);
  unsigned char *out;
  CUDA(cudaMalloc(&out, BYTES));
  const cuuint32_t ones[3] = {1, 1, 1}, steps[3] = {1, 2, 3};
  const int starts[][3] = {{0, 0, 0}, {8, 5, 1}, {-4, -2, -1}, {32, 26, 4}};
  for (const int *start : starts) {
    for (int swizzle = 0; swizzle <= 3; swizzle++) {
      const cuuint32_t box[3] = {swizzle ? 4u << swizzle : 20, 12, 3};
      for (int rank = 1; rank <= 3; rank++)
        check_load(data, device, out, rank, dims, box, ones, start, swizzle);
    }
    const cuuint32_t box[3] = {16, 11, 4};
    check_load(data, device, out, 3, dims, box, steps, start, 2);
  }

  CUtensorMap map;
  const cuuint32_t box[2] = {20, 12};
  EXPECT(describe(&map, device, 2, dims, box, ones, 0) == CUDA_SUCCESS, "tensor_copy: map for stores");
  store<<<1, 64>>>(map, 28, 22, 20 * 12, false); // beyond both edges: 12 x 8 are written
  CUDA(cudaDeviceSynchronize());
  store<<<1, 64>>>(map, 24, 2, 20 * 12, true); // beyond the last column: 16 are added to
  CUDA(cudaDeviceSynchronize());
  for (int y = 0; y < 12; y++)
    for (int x = 0; x < 20; x++) {
      if (28 + x < 40 && 22 + y < 30)
        data[(22 + y) * 40 + 28 + x] = 1000.0f + (float)(y * 20 + x);
      if (24 + x < 40)
        data[(2 + y) * 40 + 24 + x] += 1000.0f + (float)(y * 20 + x);
    }
  std::vector<float> after = vgt_download(device, data.size());
  for (size_t i = 0; i < data.size(); i++)
    EXPECT(after[i] == data[i], "tensor_copy: after stores element %zu is %g instead of %g", i, after[i], data[i]);

  multicast<<<2, 64>>>(map, 20 * 12 * 4, (float *)out);
  CUDA(cudaDeviceSynchronize());
  std::vector<float> both = vgt_download((float *)out, 2 * 20 * 12);
  for (int i = 0; i < 2 * 20 * 12; i++)
    EXPECT(both[i] == data[i % 240 / 20 * 40 + i % 20], "tensor_copy: multicast: element %d is %g", i, both[i]);

  make_and_load<<<1, 32>>>((CUtensorMap *)(out + 4096), device, 40, 30, 28, 21, (float *)out);
  CUDA(cudaDeviceSynchronize());
  std::vector<float> corner = vgt_download((float *)out, 20 * 12);
  for (int i = 0; i < 20 * 12; i++) {
    int x = 28 + i % 20, y = 21 + i / 20;
    EXPECT(corner[i] == (x < 40 && y < 30 ? data[y * 40 + x] : 0), "tensor_copy: a kernel's map: element %d is %g", i,
           corner[i]);
  }

  const cuuint32_t odd[2] = {3, 4}, wide[2] = {32, 4};
  EXPECT(describe(&map, device, 2, dims, odd, ones, 0) == CUDA_ERROR_INVALID_VALUE, "tensor_copy: rows of 12 bytes");
  EXPECT(describe(&map, device, 2, dims, wide, ones, 1) == CUDA_ERROR_INVALID_VALUE,
         "tensor_copy: rows beyond a swizzle");
  EXPECT(describe(&map, (char *)device + 4, 2, dims, box, ones, 0) == CUDA_ERROR_INVALID_VALUE, "tensor_copy: address");
  CUDA(cudaFree(device));
  CUDA(cudaFree(out));
  printf("ok tensor_copy\n");
  return 0;
}
