// Products of matrices by warps, through <mma.h>. wmma_sm80.ptx: nvcc -std=c++17 -ptx -arch=compute_80.
#include <mma.h>
using namespace nvcuda::wmma;

constexpr int LD = 32; // elements between rows or columns of A and B

// C = 2 * sum over k < 3 of A[k] * B[k], where A[k] starts k tiles of 16 * LD elements after A[0].
template <int M, int N, int K, typename T, typename C, typename LA, typename LB>
__device__ void body(const T *a, const T *b, C *c, int ldc) {
  fragment<matrix_a, M, N, K, T, LA> fa;
  fragment<matrix_b, M, N, K, T, LB> fb;
  fragment<accumulator, M, N, K, C> fc;
  fill_fragment(fc, (C)0);
  for (int k = 0; k < 3; k++) {
    load_matrix_sync(fa, a + k * LD * LD, LD);
    load_matrix_sync(fb, b + k * LD * LD, LD);
    mma_sync(fc, fa, fb, fc);
  }
  for (int i = 0; i < fc.num_elements; i++)
    fc.x[i] = fc.x[i] * (C)2;
  store_matrix_sync(c, fc, ldc, mem_row_major);
}

#define KERNEL(name, M, N, T, C, LA, LB)                                                                               \
  extern "C" __global__ void name(const T *a, const T *b, C *c) { body<M, N, 16, T, C, LA, LB>(a, b, c, 32); }
KERNEL(half_rc, 16, 16, half, float, row_major, col_major)
KERNEL(half_cr, 16, 16, half, half, col_major, row_major)
KERNEL(half_tall, 32, 8, half, half, col_major, row_major)
KERNEL(half_wide, 8, 32, half, float, row_major, col_major)
KERNEL(bf16_rr, 16, 16, __nv_bfloat16, float, row_major, row_major)
KERNEL(bf16_tall, 32, 8, __nv_bfloat16, float, row_major, col_major)
KERNEL(s8_wide, 8, 32, signed char, int, row_major, row_major)
KERNEL(u8_cc, 16, 16, unsigned char, int, col_major, col_major)

// C = A * B + C transposed.
extern "C" __global__ void tf32_rr(const float *a, const float *b, float *c) {
  fragment<matrix_a, 16, 16, 8, precision::tf32, row_major> fa;
  fragment<matrix_b, 16, 16, 8, precision::tf32, row_major> fb;
  fragment<accumulator, 16, 16, 8, float> fc;
  load_matrix_sync(fc, c, 32, mem_col_major);
  load_matrix_sync(fa, a, LD);
  load_matrix_sync(fb, b, LD);
  for (int i = 0; i < fa.num_elements; i++)
    fa.x[i] = __float_to_tf32(fa.x[i]);
  mma_sync(fc, fa, fb, fc);
  __syncwarp();
  store_matrix_sync(c, fc, 32, mem_row_major);
}

extern "C" __global__ void f64_rc(const double *a, const double *b, double *c) {
  __shared__ double tile[8 * 8];
  fragment<matrix_a, 8, 8, 4, double, row_major> fa;
  fragment<matrix_b, 8, 8, 4, double, col_major> fb;
  fragment<accumulator, 8, 8, 4, double> fc;
  load_matrix_sync(fc, c, 32, mem_col_major);
  load_matrix_sync(fa, a, LD);
  load_matrix_sync(fb, b, LD);
  mma_sync(fc, fa, fb, fc);
  store_matrix_sync(tile, fc, 8, mem_col_major);
  __syncwarp();
  for (int i = threadIdx.x; i < 64; i += 32)
    c[i / 8 * 32 + i % 8] = tile[i % 8 * 8 + i / 8];
}
