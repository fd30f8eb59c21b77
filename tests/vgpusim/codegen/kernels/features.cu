#include <cassert>
#include <cooperative_groups.h>
#include <cstdio>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
namespace cg = cooperative_groups;
extern "C" __global__ void say(int n) {
  int i = threadIdx.x;
  if (i < n)
    printf("thread %d of %d: %f %s\n", i, n, i * 0.5, "ok");
}
extern "C" __global__ void math(const double *x, double *o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    o[i] = exp(x[i]) + sin(x[i] * 1e5) * rsqrt(x[i]) + log(x[i]) + pow(x[i], 1.7) + erf(x[i]) + cbrt(x[i]);
}
extern "C" __global__ void mathf(const float *x, float *o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    o[i] = expf(x[i]) + sinf(x[i] * 1e5f) * rsqrtf(x[i]) + logf(x[i]) + powf(x[i], 1.7f) + tanhf(x[i]) +
           __fdividef(1.f, x[i]) + fmodf(x[i], 0.3f);
}
extern "C" __global__ void halfs(const __half2 *x, __half2 *o, const __nv_bfloat16 *b, __nv_bfloat16 *q, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    o[i] = __hfma2(x[i], x[i], h2exp(x[i]));
    q[i] = __hadd(b[i], b[i]) * b[i];
  }
}
extern "C" __global__ void scan(const int *x, int *o, int n) {
  __shared__ int s[256];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  int v = i < n ? x[i] : 0;
  s[t] = v;
  __syncthreads();
  for (int d = 1; d < blockDim.x; d <<= 1) {
    int u = t >= d ? s[t - d] : 0;
    __syncthreads();
    s[t] += u;
    __syncthreads();
  }
  if (i < n)
    o[i] = s[t];
}
extern "C" __global__ void lookback(const int *x, int *o, volatile long long *state, int *ticket,
                                    int n) { // decoupled look-back, one element a thread
  __shared__ int s[8];
  __shared__ int bid, prefix;
  if (threadIdx.x == 0)
    bid = atomicAdd(ticket, 1);
  __syncthreads();
  int b = bid;
  int i = b * blockDim.x + threadIdx.x;
  int v = i < n ? x[i] : 0;
  int l = threadIdx.x & 31, w = threadIdx.x >> 5;
  int inc = v;
  for (int d = 1; d < 32; d <<= 1) {
    int u = __shfl_up_sync(~0u, inc, d);
    if (l >= d)
      inc += u;
  }
  if (l == 31)
    s[w] = inc;
  __syncthreads();
  int base = 0;
  for (int k = 0; k < w; k++)
    base += s[k];
  int total = 0;
  for (int k = 0; k < blockDim.x / 32; k++)
    total += s[k];
  if (threadIdx.x == 0) {
    if (b == 0) {
      state[0] = (2ll << 32) | (unsigned)total;
      prefix = 0;
    } else {
      state[b] = (1ll << 32) | (unsigned)total;
      int p = 0;
      for (int k = b - 1;; k--) {
        long long q;
        do
          q = state[k];
        while (q == 0);
        p += (int)q;
        if ((q >> 32) == 2)
          break;
      }
      prefix = p;
      state[b] = (2ll << 32) | (unsigned)(p + total);
    }
  }
  __syncthreads();
  if (i < n)
    o[i] = prefix + base + inc;
}
extern "C" __global__ void tiles(const int *x, int *o) {
  auto b = cg::this_thread_block();
  auto t = cg::tiled_partition<8>(b);
  int v = x[b.thread_rank()];
  for (int d = 4; d; d >>= 1)
    v += t.shfl_down(v, d);
  if (t.thread_rank() == 0)
    o[b.thread_rank() / 8] = v;
  auto c = cg::coalesced_threads();
  (void)c;
  if (t.any(v > 100))
    o[b.thread_rank()] += 0;
}
extern "C" __global__ void checked(const int *x, int n) {
  int i = threadIdx.x;
  if (i < n)
    assert(x[i] != 13);
}
extern "C" __global__ void local(const int *x, int *o, int n) {
  int a[16];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  for (int k = 0; k < 16; k++)
    a[k] = x[(i + k) % n];
  int s = 0;
  for (int k = 0; k < 16; k++)
    s = s * 3 + a[(x[i] + k) & 15];
  o[i] = s;
}
extern "C" __global__ void sw(const int *x, int *o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  int r;
  switch (x[i]) {
  case 0:
    r = 5;
    break;
  case 1:
    r = x[i] * 7;
    break;
  case 2:
    r = i;
    break;
  case 3:
    r = i * i;
    break;
  case 4:
    r = -1;
    break;
  case 5:
    r = i << 3;
    break;
  case 6:
    r = __popc(i);
    break;
  default:
    r = x[i] % 7;
  }
  o[i] = r;
}
extern "C" __global__ void divs(const long long *a, const long long *b, long long *o, unsigned *p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    o[i] = a[i] / b[i] + a[i] % b[i];
    p[i] = (unsigned)a[i] / 7u + (unsigned)b[i] % 10u;
  }
}
