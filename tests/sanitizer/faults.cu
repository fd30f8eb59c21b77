/* Planted faults: `faults NAME` runs one, `faults` lists them as "NAME TOOL KIND". Each kernel is wrong in one way, or,
 * where TOOL is "none", right in a way that looks wrong. */
#include <cooperative_groups.h>
#include <cstdio>
#include <cstring>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;

#include "faults_race.cuh"

static int *device(size_t nbytes, int fill = 0) {
  void *p = nullptr;
  cudaMalloc(&p, nbytes);
  if (fill >= 0)
    cudaMemset(p, fill, nbytes);
  return static_cast<int *>(p);
}

// Lane l copies `nbytes` bytes from offset 16 * l and zero-fills up to 16, as pipelines do past the end of their input.
__global__ void copy_to_shared(const int *in, int *out, int nbytes) {
  __shared__ alignas(16) int tile[32][4];
  __pipeline_memcpy_async(tile[threadIdx.x], in + 4 * threadIdx.x, 16, 16 - nbytes);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  out[threadIdx.x] = tile[threadIdx.x][3];
}

struct Case {
  const char *name, *tool, *kind;
  void (*run)();
};

/* ---- memcheck */
__global__ void store(int *p, int n) { p[blockIdx.x * blockDim.x + threadIdx.x + n] = 1; }
__global__ void load(const int *p, int n, int *out) { *out = p[threadIdx.x + n]; }
template <typename T> __global__ void store_as(char *p, int at) { *reinterpret_cast<T *>(p + at) = T{}; }
template <typename T> __global__ void load_as(const char *p, int at, T *out) {
  *out = *reinterpret_cast<const T *>(p + at);
}
__global__ void one_thread(int *p, int which, int at) {
  if (threadIdx.x == which)
    p[at] = 1;
}
__global__ void guard_wrong(float *p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n)
    p[i] = 1;
}
__global__ void add(int *p, int at) { atomicAdd(p + at, 1); }
__global__ void compare_and_swap(unsigned long long *p, int at) { atomicCAS(p + at, 0ull, 1ull); }
__global__ void indirect(const int *index, int *p) { p[index[threadIdx.x]] = 1; }
__global__ void strided(int *p, int stride) { p[threadIdx.x * stride] = 1; }
__global__ void backwards(int *p, int n) {
  for (int i = n; i >= -1; i--)
    p[i] = i;
}
__global__ void shared_over(int at, int *out) {
  extern __shared__ int s[];
  s[threadIdx.x + at] = 1;
  __syncthreads();
  *out = s[0];
}
__global__ void shared_static(int at, int *out) {
  __shared__ int s[64];
  s[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x + at];
}
__global__ void null_pointer(int *p) { p[threadIdx.x] = 1; }
__global__ void chase(int **p) { **p = 1; }
__global__ void matrix(float *m, int width, int height, int pitch) {
  int x = threadIdx.x, y = threadIdx.y;
  if (x <= width && y < height)
    m[y * pitch + x] = 1;
}
__device__ __noinline__ void helper(int *p, int at) { p[at] = 7; }
__global__ void in_a_function(int *p, int at) { helper(p, at + threadIdx.x); }
__device__ int table[16];
__global__ void past_a_variable(int at) { table[at] = 1; }
__global__ void local_array(int at, int *out) {
  int a[8];
  for (int i = 0; i < 8; i++)
    a[i] = i * at;
  *out = a[at & 7];
}
__global__ void copy16(const int4 *from, int4 *to, int n) { to[threadIdx.x] = from[threadIdx.x + n]; }
__global__ void device_heap(int at, int *out) {
  int *p = static_cast<int *>(malloc(16));
  p[0] = 1;
  *out = p[0] + at;
  free(p);
}

/* ---- initcheck */
__global__ void sum(const int *p, int n, int *out) {
  int total = 0;
  for (int i = 0; i < n; i++)
    total += p[i];
  *out = total;
}
__global__ void scale(float *p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    p[i] = 2 * p[i];
}
__global__ void shared_unset(int *out) {
  __shared__ int s[64];
  if (threadIdx.x < 32)
    s[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];
}
enum { BRANCH, INDEX, SHUFFLE, COPY };

__global__ void use_unset(int *out, int how, int set) { // of 64 words, the first `set` are set
  __shared__ int s[64], copied[64];
  int t = threadIdx.x;
  if (t < set)
    s[t] = t;
  __syncthreads();
  int value = s[t];
  if (how == BRANCH && value > 5)
    out[t] = 1;
  if (how == INDEX)
    out[value & 63] = 1;
  if (how == SHUFFLE)
    out[t] = __shfl_sync(~0u, t < 48 ? t : value, 16);
  if (how == COPY) {
    copied[63 - t] = value;
    __syncthreads();
    out[t] = copied[t];
  }
}

__global__ void use_two(int *out) { // of two loads, before either value is used
  __shared__ int s[64], r[64];
  int t = threadIdx.x;
  if (t < 32)
    s[t] = r[t] = t;
  __syncthreads();
  int one = s[t];
  int other = r[t];
  __syncthreads();
  out[t] = one;
  out[64 + t] = other;
}

__global__ void leave_unset(int *out) { // reads what nobody has written, and does not use it
  __shared__ int s[64], copied[64];
  int t = threadIdx.x;
  if (t < 32)
    s[t] = t;
  __syncthreads();
  int value = s[t];
  copied[t] = value + 1;
  for (int step = 1; step < 32; step *= 2)
    value += __shfl_up_sync(~0u, value, step);
  __syncthreads();
  out[t] = t < 32 ? value + copied[t] : 0;
  s[63 - t] = 7;
  __syncthreads();
  out[64 + t] = s[t];
}

__global__ void shared_set(int *out) {
  __shared__ int s[64];
  s[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = s[63 - threadIdx.x];
}
__global__ void fill_half(int *p, int n) {
  if (threadIdx.x < n / 2)
    p[threadIdx.x] = 1;
}
__global__ void bytes(const char *p, int *out) { *out = p[3]; }
__global__ void count_up(int *p) { atomicAdd(p, 1); }
__global__ void read_wide(const int4 *p, int4 *out) { *out = p[0]; }
__global__ void shared_counter(int *out) {
  __shared__ int s;
  atomicAdd(&s, 1);
  __syncthreads();
  *out = s;
}

/* ---- synccheck */
__global__ void half_a_warp(int *p) {
  if (threadIdx.x < 16)
    __syncthreads();
  p[threadIdx.x] = 1;
}
__global__ void odd_lanes(int *p) {
  if (threadIdx.x & 1) {
    __syncthreads();
    p[threadIdx.x] = 2;
  } else {
    p[threadIdx.x] = 3;
  }
}
__global__ void both_branches(int *p) {
  if (threadIdx.x % 2)
    __syncthreads();
  else
    __syncthreads();
  p[threadIdx.x] = 1;
}
__global__ void in_a_loop(int *p) {
  for (unsigned i = 0; i < threadIdx.x % 4 + 1; i++)
    __syncthreads();
  p[threadIdx.x] = 1;
}
__global__ void wrong_count(int *p) {
  asm volatile("bar.sync 1, 48;");
  p[threadIdx.x] = 1;
}
__global__ void warp_mask(int *p) {
  if (threadIdx.x < 16)
    __syncwarp(0xff);
  p[threadIdx.x] = 1;
}
__global__ void warp_mask_divergent(int *p) {
  if (threadIdx.x < 16)
    __syncwarp();
  p[threadIdx.x] = 1;
}
__global__ void warp_tiles(int *p) { /* each lane names its half of the warp */
  __syncwarp(0xffffu << (threadIdx.x & 16));
  p[threadIdx.x] = 1;
}
__global__ void early_exit(int *p, int n) {
  if (threadIdx.x >= n)
    return;
  __syncthreads();
  p[threadIdx.x] = 1;
}
__global__ void whole_warps(int *p) {
  if (threadIdx.x < 32)
    asm volatile("bar.sync 2, 32;");
  __syncthreads();
  p[threadIdx.x] = 1;
}
__global__ void one_lane_early(int *p) {
  if (threadIdx.x == 5)
    __syncthreads();
  __syncthreads();
  p[threadIdx.x] = 1;
}

static void finish() {
  cudaError_t error = cudaDeviceSynchronize();
  std::printf("%s\n", cudaGetErrorString(error));
}
#define RUN(...)                                                                                                       \
  [] {                                                                                                                 \
    __VA_ARGS__;                                                                                                       \
    finish();                                                                                                          \
  }

static const Case cases[] = {
    {"write-1-past", "memcheck", "invalid", RUN(store<<<1, 64>>>(device(256), 1))},
    {"write-far", "memcheck", "invalid", RUN(store<<<1, 64>>>(device(256), 1 << 20))},
    {"write-before", "memcheck", "invalid", RUN(store<<<1, 64>>>(device(256), -1))},
    {"write-block-past", "memcheck", "invalid", RUN(store<<<3, 64>>>(device(512), 0))},
    {"read-1-past", "memcheck", "invalid", RUN(load<<<1, 64>>>(device(256), 1, device(4)))},
    {"read-before", "memcheck", "invalid", RUN(load<<<1, 64>>>(device(256), -64, device(4)))},
    {"off-by-one-guard", "memcheck", "invalid", RUN(guard_wrong<<<2, 64>>>((float *)device(400), 100))},
    {"one-thread", "memcheck", "invalid", RUN(one_thread<<<1, 64>>>(device(256), 37, 64))},
    {"byte-past", "memcheck", "invalid", RUN(store_as<char><<<1, 1>>>((char *)device(100), 100))},
    {"short-straddles", "memcheck", "invalid", RUN(store_as<short><<<1, 1>>>((char *)device(101), 100))},
    {"double-past", "memcheck", "invalid", RUN(store_as<double><<<1, 1>>>((char *)device(64), 64))},
    {"vector-past", "memcheck", "invalid", RUN(copy16<<<1, 4>>>((int4 *)device(64), (int4 *)device(64), 1))},
    {"atomic-past", "memcheck", "invalid", RUN(add<<<1, 1>>>(device(40), 10))},
    {"cas-past", "memcheck", "invalid", RUN(compare_and_swap<<<1, 1>>>((unsigned long long *)device(40), 5))},
    {"index-from-memory", "memcheck", "invalid",
     RUN(int *index = device(128); int bad = 1000; cudaMemcpy(index + 7, &bad, 4, cudaMemcpyHostToDevice);
         indirect<<<1, 32>>>(index, device(400)))},
    {"stride", "memcheck", "invalid", RUN(strided<<<1, 64>>>(device(1024), 5))},
    {"loop-to-minus-one", "memcheck", "invalid", RUN(backwards<<<1, 1>>>(device(4096), 1023))},
    {"shared-past", "memcheck", "invalid", RUN(shared_over<<<1, 32, 128>>>(1, device(4)))},
    {"shared-far", "memcheck", "invalid", RUN(shared_over<<<1, 32, 128>>>(1 << 20, device(4)))},
    {"shared-static-past", "memcheck", "invalid", RUN(shared_static<<<1, 64>>>(1, device(256)))},
    {"null", "memcheck", "invalid", RUN(null_pointer<<<1, 32>>>(nullptr))},
    {"null-offset", "memcheck", "invalid", RUN(null_pointer<<<1, 32>>>((int *)64))},
    {"host-pointer", "memcheck", "invalid", RUN(static int host[32]; null_pointer<<<1, 32>>>(host))},
    {"wild-pointer", "memcheck", "invalid", RUN(null_pointer<<<1, 32>>>((int *)0xdeadbeef0000))},
    {"pointer-in-memory", "memcheck", "invalid", RUN(chase<<<1, 1>>>((int **)device(8)))},
    {"after-free", "memcheck", "invalid", RUN(int *p = device(256); cudaFree(p); store<<<1, 64>>>(p, 0))},
    {"after-free-read", "memcheck", "invalid",
     RUN(int *p = device(256); cudaFree(p); load<<<1, 64>>>(p, 0, device(4)))},
    {"after-free-async", "memcheck", "invalid",
     RUN(void *p; cudaMallocAsync(&p, 256, 0); cudaFreeAsync(p, 0); cudaDeviceSynchronize();
         store<<<1, 64>>>((int *)p, 0))},
    {"column-past", "memcheck", "invalid", RUN(matrix<<<1, dim3(32, 8)>>>((float *)device(16 * 8 * 4), 16, 8, 16))},
    {"in-a-function", "memcheck", "invalid", RUN(in_a_function<<<1, 32>>>(device(128), 8))},
    {"past-a-module", "memcheck", "invalid", RUN(past_a_variable<<<1, 1>>>(1 << 16))},
    {"misaligned-4", "memcheck", "misaligned", RUN(store_as<int><<<1, 1>>>((char *)device(64), 2))},
    {"misaligned-8", "memcheck", "misaligned",
     RUN(load_as<double><<<1, 1>>>((char *)device(64), 4, (double *)device(8)))},
    {"misaligned-16", "memcheck", "misaligned", RUN(store_as<int4><<<1, 1>>>((char *)device(64), 8))},
    {"misaligned-2", "memcheck", "misaligned",
     RUN(load_as<short><<<1, 1>>>((char *)device(64), 1, (short *)device(8)))},
    {"leak", "leakcheck", "leak", RUN(device(1000))},
    {"leak-async", "leakcheck", "leak", RUN(void *p; cudaMallocAsync(&p, 256, 0))},
    {"never-written", "initcheck", "uninitialised", RUN(sum<<<1, 1>>>(device(64, -1), 16, device(4)))},
    {"half-written", "initcheck", "uninitialised",
     RUN(int *p = device(256, -1); fill_half<<<1, 64>>>(p, 64); sum<<<1, 1>>>(p, 64, device(4)))},
    {"half-copied", "initcheck", "uninitialised",
     RUN(int *p = device(256, -1); static int host[32]; cudaMemcpy(p, host, 128, cudaMemcpyHostToDevice);
         sum<<<1, 1>>>(p, 33, device(4)))},
    {"read-and-write", "initcheck", "uninitialised", RUN(scale<<<1, 64>>>((float *)device(256, -1), 64))},
    {"fresh-again", "initcheck", "uninitialised",
     RUN(cudaFree(device(256)); sum<<<1, 1>>>(device(256, -1), 1, device(4)))},
    {"shared-half", "initcheck", "uninitialised", RUN(shared_unset<<<1, 64>>>(device(256)))},
    {"unset-two", "initcheck", "uninitialised", RUN(use_two<<<1, 64>>>(device(512)))},
    {"unset-branch", "initcheck", "uninitialised", RUN(use_unset<<<1, 64>>>(device(256), BRANCH, 63))},
    {"unset-index", "initcheck", "uninitialised", RUN(use_unset<<<1, 64>>>(device(256), INDEX, 63))},
    {"unset-shuffle", "initcheck", "uninitialised", RUN(use_unset<<<1, 64>>>(device(256), SHUFFLE, 48))},
    {"unset-copy", "initcheck", "uninitialised", RUN(use_unset<<<1, 64>>>(device(256), COPY, 63))},
    {"shared-counter", "initcheck", "uninitialised", RUN(shared_counter<<<1, 64>>>(device(4)))},
    {"one-byte", "initcheck", "uninitialised",
     RUN(char *p = (char *)device(4, -1); cudaMemset(p, 0, 3); bytes<<<1, 1>>>(p, device(4)))},
    {"atomic-unset", "initcheck", "uninitialised", RUN(count_up<<<1, 1>>>(device(4, -1)))},
    {"wide-read", "initcheck", "uninitialised",
     RUN(int *p = device(16, -1); cudaMemset(p, 0, 12); read_wide<<<1, 1>>>((int4 *)p, (int4 *)device(16)))},
    {"async-unset", "initcheck", "uninitialised",
     RUN(void *p; cudaMallocAsync(&p, 64, 0); sum<<<1, 1>>>((int *)p, 1, device(4)))},
    {"reverse", "racecheck", "race", RUN(reverse<<<1, 256>>>(device(1024), false))},
    {"reverse-again", "racecheck", "race", RUN(reverse_again<<<1, 256>>>(device(1024), false))},
    {"late-round", "racecheck", "race", RUN(late_round<<<1, 256>>>(device(1024), 8, 5, 32))},
    {"late-round-before", "racecheck", "race", RUN(late_round<<<1, 64>>>(device(256), 8, 5, -32))},
    {"some-lanes", "racecheck", "race", RUN(some_lanes<<<1, 64>>>(device(256), 8, 5))},
    {"add-rows", "racecheck", "race", RUN(add_rows<<<4, 64>>>(device(256), device(256), false))},
    {"fields", "racecheck", "race", RUN(fields<<<4, 128>>>((Fields *)device(2048), true))},
    {"part-of-a-row", "racecheck", "race", RUN(part_of_a_row<<<8, 32>>>(device(1024), true))},
    {"one-place", "racecheck", "race", RUN(one_place<<<1, 64>>>(device(4)))},
    {"one-place-warp", "racecheck", "race", RUN(one_place<<<1, 32>>>(device(4)))},
    {"reduce-128", "racecheck", "race", RUN(reduce<<<1, 256>>>(device(1024, 1), device(4), 128))},
    {"reduce-64", "racecheck", "race", RUN(reduce<<<1, 256>>>(device(1024, 1), device(4), 64))},
    {"histogram", "racecheck", "race", RUN(histogram<<<1, 256>>>(device(1024), device(64), false))},
    {"global-counter", "racecheck", "race", RUN(global_counter<<<1, 256>>>(device(4), false))},
    {"global-counter-blocks", "racecheck", "race", RUN(global_counter<<<8, 32>>>(device(4), false))},
    {"neighbour", "racecheck", "race", RUN(neighbour<<<1, 256>>>(device(1024), 256))},
    {"neighbour-blocks", "racecheck", "race", RUN(neighbour<<<8, 32>>>(device(1024), 256))},
    {"no-fence", "racecheck", "race", RUN(last_block<<<8, 32>>>(device(64), (unsigned *)device(4), device(4), false))},
    {"other-half", "racecheck", "race", RUN(half_of_the_block<<<1, 128>>>(device(512), false))},
    {"write-after-read", "racecheck", "race", RUN(write_after_read<<<1, 64>>>(device(256)))},
    {"transpose", "racecheck", "race",
     RUN(transpose<<<1, dim3(16, 16)>>>((float *)device(1024), (float *)device(1024), false))},
    {"blocks-write-one", "racecheck", "race", RUN(blocks_write_one<<<8, 32>>>(device(4, 255)))},
    {"half-a-warp", "synccheck", "barrier", RUN(half_a_warp<<<1, 32>>>(device(128)))},
    {"odd-lanes", "synccheck", "barrier", RUN(odd_lanes<<<1, 32>>>(device(128)))},
    {"both-branches", "synccheck", "barrier", RUN(both_branches<<<1, 32>>>(device(128)))},
    {"in-a-loop", "synccheck", "barrier", RUN(in_a_loop<<<1, 32>>>(device(128)))},
    {"wrong-count", "synccheck", "barrier", RUN(wrong_count<<<1, 64>>>(device(256)))},
    {"warp-mask", "synccheck", "barrier", RUN(warp_mask<<<1, 32>>>(device(128)))},
    {"warp-divergent", "synccheck", "barrier", RUN(warp_mask_divergent<<<1, 32>>>(device(128)))},
    {"one-lane-early", "synccheck", "barrier", RUN(one_lane_early<<<1, 32>>>(device(128)))},
    {"async-copy", "memcheck", "invalid", RUN(copy_to_shared<<<1, 32>>>(device(480), device(128), 16))},
    {"async-copy-part", "memcheck", "invalid", RUN(copy_to_shared<<<1, 32>>>(device(500), device(128), 8))},
    {"ok-async-copy", "none", "", RUN(copy_to_shared<<<1, 32>>>(device(512), device(128), 16))},
    {"ok-async-copy-part", "none", "", RUN(copy_to_shared<<<1, 32>>>(device(504), device(128), 8))},
    {"ok-async-copy-nothing", "none", "", RUN(copy_to_shared<<<1, 32>>>(device(4) + (1 << 24), device(128), 0))},
    {"ok-store", "none", "", RUN(store<<<1, 64>>>(device(256), 0))},
    {"ok-managed", "none", "", RUN(void *p; cudaMallocHost(&p, 256); store<<<1, 64>>>((int *)p, 0))},
    {"ok-module", "none", "", RUN(past_a_variable<<<1, 1>>>(3))},
    {"ok-local", "none", "", RUN(local_array<<<1, 1>>>(3, device(4)))},
    {"ok-heap", "none", "", RUN(device_heap<<<1, 1>>>(3, device(4)))},
    {"ok-free-later", "none", "",
     RUN(void *p; cudaMallocAsync(&p, 256, 0); cudaMemsetAsync(p, 0, 256, 0); store<<<1, 64>>>((int *)p, 0);
         cudaFreeAsync(p, 0))},
    {"ok-unset", "none", "", RUN(leave_unset<<<1, 64>>>(device(512)))},
    {"ok-shared-set", "none", "", RUN(shared_set<<<1, 64>>>(device(256)))},
    {"shared-bytes", "racecheck", "race", RUN(shared_bytes<<<1, 128>>>(device(512), false))},
    {"ok-shared-bytes", "none", "", RUN(shared_bytes<<<1, 128>>>(device(512), true))},
    {"tiles", "racecheck", "race",
     RUN(tiles<<<1, dim3(16, 16)>>>((float *)device(4096), (float *)device(1024), 32, false))},
    {"ok-tiles", "none", "", RUN(tiles<<<1, dim3(16, 16)>>>((float *)device(4096), (float *)device(1024), 32, true))},
    {"handed-over", "racecheck", "race", RUN(handed_over<<<1, 128>>>(device(256), false))},
    {"ok-handed-over", "none", "", RUN(handed_over<<<1, 128>>>(device(256), true))},
    {"bytes-of-next", "racecheck", "race",
     RUN(bytes_of_next<<<1, 128>>>((unsigned char *)device(160), (unsigned char *)device(128), false))},
    {"ok-bytes-of-next", "none", "",
     RUN(bytes_of_next<<<1, 128>>>((unsigned char *)device(160), (unsigned char *)device(128), true))},
    {"bytes-of-all", "racecheck", "race", RUN(bytes_of_all<<<1, 128>>>((unsigned char *)device(32)))},
    {"flag-is-set", "racecheck", "race", RUN(flag_is_set<<<1, 64>>>(device(128), device(4), device(128), false))},
    {"ok-flag-is-set", "none", "", RUN(flag_is_set<<<1, 64>>>(device(128), device(4), device(128), true))},
    {"counted", "racecheck", "race", RUN(counted<<<1, 64>>>(device(128), device(128), false))},
    {"ok-counted", "none", "", RUN(counted<<<1, 64>>>(device(128), device(128), true))},
    {"ok-reverse", "none", "", RUN(reverse<<<1, 256>>>(device(1024), true))},
    {"ok-reverse-again", "none", "", RUN(reverse_again<<<1, 256>>>(device(1024), true))},
    {"ok-some-lanes", "none", "", RUN(some_lanes<<<1, 64>>>(device(256), 8, -1))},
    {"ok-add-rows", "none", "", RUN(add_rows<<<4, 64>>>(device(256), device(256), true))},
    {"ok-fields", "none", "", RUN(fields<<<4, 128>>>((Fields *)device(2048), false))},
    {"ok-late-round", "none", "", RUN(late_round<<<1, 256>>>(device(1024), 8, 5, 0))},
    {"ok-same-value", "none", "", RUN(same_value<<<1, 64>>>(device(4)))},
    {"ok-reduce", "none", "", RUN(reduce<<<1, 256>>>(device(1024), device(4), 0))},
    {"ok-histogram", "none", "", RUN(histogram<<<1, 256>>>(device(1024), device(64), true))},
    {"ok-counter", "none", "", RUN(global_counter<<<8, 256>>>(device(4), true))},
    {"ok-two-arrays", "none", "", RUN(two_arrays<<<8, 32>>>(device(1024), device(1024), 256))},
    {"ok-last-block", "none", "", RUN(last_block<<<8, 32>>>(device(64), (unsigned *)device(4), device(4), true))},
    {"ok-bytes-apart", "none", "", RUN(bytes_apart<<<1, 256>>>((unsigned char *)device(256)))},
    {"ok-half-blocks", "none", "", RUN(half_of_the_block<<<1, 128>>>(device(512), true))},
    {"ok-flags", "none", "", RUN(flags<<<1, 64>>>(device(4)))},
    {"ok-transpose", "none", "",
     RUN(transpose<<<1, dim3(16, 16)>>>((float *)device(1024), (float *)device(1024), true))},
    {"ok-grid-sync", "none", "",
     RUN(int *p = device(64); int *q = device(64); void *a[] = {&p, &q};
         cudaLaunchCooperativeKernel((void *)grid_wide, dim3(8), dim3(32), a, 0, 0))},
    {"ok-early-exit", "none", "", RUN(early_exit<<<1, 64>>>(device(256), 40))},
    {"ok-warp-tiles", "none", "", RUN(warp_tiles<<<1, 64>>>(device(256)))},
    {"ok-whole-warps", "none", "", RUN(whole_warps<<<1, 64>>>(device(256)))},
};

int main(int argc, char **argv) {
  if (argc > 1 && cudaFree(nullptr) != cudaSuccess)
    return 3; // no device: exit with an error, since no case can fault
  for (const Case &c : cases) {
    if (argc < 2)
      std::printf("%s %s %s\n", c.name, c.tool, *c.kind ? c.kind : "-");
    else if (!std::strcmp(argv[1], c.name))
      return c.run(), 0;
  }
  return argc < 2 ? 0 : 2;
}
