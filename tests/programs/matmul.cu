// C = A B with 16x16 tiles in shared memory; no dimension is a multiple of the tile.
#include "vgt_check.h"

constexpr int TILE = 16;

__global__ void matmul(const float *a, const float *b, float *c, int rows, int inner, int columns) {
  __shared__ float tile_a[TILE][TILE];
  __shared__ float tile_b[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y;
  int column = blockIdx.x * TILE + threadIdx.x;
  float sum = 0;
  for (int start = 0; start < inner; start += TILE) {
    int k = start + threadIdx.x;
    tile_a[threadIdx.y][threadIdx.x] = row < rows && k < inner ? a[row * inner + k] : 0.0f;
    k = start + threadIdx.y;
    tile_b[threadIdx.y][threadIdx.x] = k < inner && column < columns ? b[k * columns + column] : 0.0f;
    __syncthreads();
    for (int i = 0; i < TILE; i++)
      sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
    __syncthreads();
  }
  if (row < rows && column < columns)
    c[row * columns + column] = sum;
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 133);
  std::mt19937 random(args.seed);
  int rows = args.size, inner = args.size + 14, columns = args.size / 2 + 3;
  std::vector<float> a = vgt_floats(random, (size_t)rows * inner), b = vgt_floats(random, (size_t)inner * columns);
  float *da = vgt_upload(a), *db = vgt_upload(b), *dc = nullptr;
  CUDA(cudaMalloc(&dc, (size_t)rows * columns * sizeof(float)));
  matmul<<<dim3((columns + TILE - 1) / TILE, (rows + TILE - 1) / TILE), dim3(TILE, TILE)>>>(da, db, dc, rows, inner,
                                                                                            columns);
  CUDA(cudaGetLastError());
  CUDA(cudaDeviceSynchronize());
  std::vector<float> c = vgt_download(dc, (size_t)rows * columns);
  for (int row = 0; row < rows; row++)
    for (int column = 0; column < columns; column++) {
      float sum = 0;
      for (int k = 0; k < inner; k++)
        sum += a[row * inner + k] * b[k * columns + column];
      float got = c[row * columns + column];
      EXPECT(got == sum, "matmul: [%d,%d] is %g instead of %g", row, column, got, sum);
    }
  CUDA(cudaFree(da));
  CUDA(cudaFree(db));
  CUDA(cudaFree(dc));
  printf("ok matmul %dx%dx%d\n", rows, inner, columns);
  return 0;
}
