// The kernels of faults.cu that are for racecheck, with a planted race or without.
#pragma once

__global__ void reverse(int *p, bool wait) {
  __shared__ int s[256];
  s[threadIdx.x] = p[threadIdx.x];
  if (wait)
    __syncthreads();
  p[threadIdx.x] = s[255 - threadIdx.x];
}
__global__ void reverse_again(int *p, bool wait) {
  __shared__ int s[256];
  for (int round = 0; round < 2; round++) {
    s[threadIdx.x] = p[threadIdx.x] + round;
    __syncthreads();
    p[threadIdx.x] = s[255 - threadIdx.x];
    if (wait)
      __syncthreads();
  }
}
// Each round does the same but for one, in which warps read what another warp stores.
__global__ void late_round(int *p, int rounds, int wrong, int distance) {
  __shared__ int s[3 * 256];
  int *mine = s + 256 + threadIdx.x;
#pragma unroll 1
  for (int round = 0; round < rounds; round++) {
    *mine = p[threadIdx.x] + round;
    p[threadIdx.x] = mine[round == wrong ? distance : 0];
    __syncthreads();
  }
}
// Half of each warp's lanes store in each round, all in one of them; the other half's words are read by another warp.
__global__ void some_lanes(int *p, int rounds, int wrong) {
  __shared__ int s[64];
  s[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll 1
  for (int round = 0; round < rounds; round++) {
    if (threadIdx.x % 32 < (round == wrong ? 32 : 16))
      s[threadIdx.x] = round;
    p[threadIdx.x] = s[(threadIdx.x ^ 32) | 16];
    __syncthreads();
  }
}
// Blocks add to the same row atomically; one of them may only load it.
__global__ void add_rows(int *p, int *out, bool all) {
  if (all || blockIdx.x % 2 == 0)
    atomicAdd(&p[threadIdx.x], 1);
  else
    out[threadIdx.x] = p[threadIdx.x];
}
struct Fields {
  char a, b, c, d;
};
// Each thread stores two fields, and one of each block a field of the block before.
__global__ void fields(Fields *p, bool same) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  p[i].a = 1;
  p[i].c = 2;
  if (blockIdx.x && threadIdx.x == 0)
    *(same ? &p[i - 40].c : &p[i - 40].d) = 3;
}
// Each block's warp stores a row, and one value in the middle of the row of the block before.
__global__ void part_of_a_row(int *p, bool other) {
  p[blockIdx.x * 32 + threadIdx.x] = threadIdx.x;
  if (other && blockIdx.x && threadIdx.x == 0)
    p[blockIdx.x * 32 - 21] = -1;
}
__global__ void one_place(int *p) {
  __shared__ int s;
  s = threadIdx.x;
  __syncthreads();
  *p = s;
}
__global__ void same_value(int *p) {
  __shared__ int s;
  s = 7;
  __syncthreads();
  if (threadIdx.x == 0)
    *p = s;
}
__global__ void reduce(const int *p, int *out, int missing) {
  __shared__ int s[256];
  s[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half)
      s[threadIdx.x] += s[threadIdx.x + half];
    if (half != missing)
      __syncthreads();
  }
  if (threadIdx.x == 0)
    *out = s[0];
}
__global__ void histogram(const int *p, int *bins, bool atomic) {
  __shared__ int s[16];
  if (threadIdx.x < 16)
    s[threadIdx.x] = 0;
  __syncthreads();
  if (atomic)
    atomicAdd(&s[p[threadIdx.x] & 15], 1);
  else
    s[p[threadIdx.x] & 15]++;
  __syncthreads();
  if (threadIdx.x < 16)
    bins[threadIdx.x] = s[threadIdx.x];
}
__global__ void global_counter(int *p, bool atomic) {
  if (atomic)
    atomicAdd(p, 1);
  else
    *p = *p + 1;
}
__global__ void neighbour(int *p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i + 1 < n)
    p[i] = p[i + 1] + 1;
}
__global__ void two_arrays(const int *p, int *q, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i + 1 < n)
    q[i] = p[i + 1] + 1;
}
__global__ void last_block(int *parts, unsigned *done, int *out, bool fenced) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = blockIdx.x;
    if (fenced)
      __threadfence();
    last = fenced ? atomicInc(done, gridDim.x) == gridDim.x - 1 : blockIdx.x == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    int total = 0;
    for (unsigned i = 0; i < gridDim.x; i++)
      total += parts[i];
    *out = total;
  }
}
__global__ void bytes_apart(unsigned char *p) {
  __shared__ unsigned char s[256];
  s[threadIdx.x] = static_cast<unsigned char>(threadIdx.x);
  __syncthreads();
  p[threadIdx.x] = s[threadIdx.x];
}
__global__ void half_of_the_block(int *p, bool right) {
  __shared__ int s[128];
  int group = threadIdx.x / 64;
  s[threadIdx.x] = threadIdx.x;
  asm volatile("bar.sync %0, 64;" ::"r"(right ? group + 1 : group + 1));
  p[threadIdx.x] = right ? s[threadIdx.x ^ 32] : s[threadIdx.x ^ 64];
}
__global__ void flags(int *p) {
  __shared__ volatile int flag;
  __shared__ int value;
  if (threadIdx.x == 0)
    flag = 0;
  __syncthreads();
  if (threadIdx.x == 32) {
    value = 5;
    __threadfence_block();
    flag = 1;
  }
  if (threadIdx.x == 0) {
    while (!flag)
      ;
    *p = value;
  }
}
__global__ void write_after_read(int *p) {
  __shared__ int s[64];
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  int v = s[(threadIdx.x + 32) & 63];
  s[threadIdx.x] = v + 1;
  p[threadIdx.x] = v;
}
__global__ void transpose(const float *in, float *out, bool wait) {
  __shared__ float t[16][17];
  t[threadIdx.y][threadIdx.x] = in[threadIdx.y * 16 + threadIdx.x];
  if (wait)
    __syncthreads();
  out[threadIdx.y * 16 + threadIdx.x] = t[threadIdx.x][threadIdx.y];
}
__global__ void blocks_write_one(int *p) {
  if (threadIdx.x == 0)
    *p = blockIdx.x;
}
__global__ void grid_wide(int *p, int *q) {
  cg::grid_group grid = cg::this_grid();
  p[blockIdx.x] = blockIdx.x;
  grid.sync();
  q[blockIdx.x] = p[gridDim.x - 1 - blockIdx.x];
}

// Warps store 32 bytes each, then read those of the next one.
__global__ void bytes_of_next(unsigned char *bytes, unsigned char *copy, bool sync) {
  bytes[threadIdx.x] = (unsigned char)threadIdx.x;
  if (sync)
    __syncthreads();
  copy[threadIdx.x] = bytes[threadIdx.x + 32];
}

// Warps store different values to the same 32 bytes.
__global__ void bytes_of_all(unsigned char *bytes) { bytes[threadIdx.x % 32] = (unsigned char)(threadIdx.x / 32); }

// One warp hands a row to the other by a flag that is set by a plain store, after a fence or not.
__global__ void flag_is_set(int *row, int *flag, int *copy, bool fence) {
  if (threadIdx.x < 32) {
    row[threadIdx.x] = threadIdx.x;
    if (fence)
      __threadfence();
    __syncwarp();
    if (threadIdx.x == 0)
      *flag = 1;
  } else {
    while (*(volatile int *)flag == 0)
      ;
    copy[threadIdx.x - 32] = ((volatile int *)row)[63 - threadIdx.x];
  }
}

// One warp counts by atomic operations at places without a pattern, the other one reads the counts.
__global__ void counted(const int *keys, int *counts, bool sync) {
  __shared__ int bins[32];
  if (threadIdx.x < 32)
    bins[threadIdx.x] = 0;
  __syncthreads();
  if (threadIdx.x < 32)
    atomicAdd(&bins[keys[threadIdx.x] + threadIdx.x * 5 % 32], 1);
  if (sync)
    __syncthreads();
  if (threadIdx.x >= 32)
    counts[threadIdx.x - 32] = bins[threadIdx.x - 32];
}

// Each thread has one byte of shared memory; without the barrier it reads one of another warp.
__global__ void shared_bytes(int *out, bool right) {
  __shared__ unsigned char s[128];
  s[threadIdx.x] = 1;
  s[threadIdx.x] += 1;
  if (right)
    __syncthreads();
  out[threadIdx.x] = s[127 - threadIdx.x];
}
// A product of tiles: without the second barrier warps load the next tile while others still read this one.
__global__ void tiles(const float *a, float *c, int n, bool right) {
  __shared__ float left[16][16], top[16][16];
  float sum = 0;
  for (int start = 0; start < n; start += 16) {
    left[threadIdx.y][threadIdx.x] = a[threadIdx.y * n + start + threadIdx.x];
    top[threadIdx.y][threadIdx.x] = a[(start + threadIdx.y) * n + threadIdx.x];
    __syncthreads();
    for (int i = 0; i < 16; i++)
      sum += left[threadIdx.y][i] * top[i][threadIdx.x];
    if (right)
      __syncthreads();
  }
  c[threadIdx.y * 16 + threadIdx.x] = sum;
}
// One half of the block hands words to the other by a barrier of its own, and takes them back by another one, or not.
__global__ void handed_over(int *out, bool right) {
  __shared__ int s[64];
  for (int i = 0; i < 3; i++) {
    if (threadIdx.x < 64) {
      if (i && right)
        asm volatile("barrier.sync 2, 128;" ::: "memory");
      s[threadIdx.x] = i;
      asm volatile("barrier.arrive 1, 128;" ::: "memory");
    } else {
      asm volatile("barrier.sync 1, 128;" ::: "memory");
      out[threadIdx.x - 64] = s[threadIdx.x - 64];
      if (right && i < 2)
        asm volatile("barrier.arrive 2, 128;" ::: "memory");
    }
  }
}
