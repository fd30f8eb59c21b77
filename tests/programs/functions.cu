// Functions and variables across translation units (-rdc=true; the second unit is functions.part.cu), function pointers
// and virtual functions, through which the lanes of one warp call different functions.
#include "functions.h"
#include "vgt_check.h"

__device__ int bias = 40;

static __device__ int local_step(int x) { return x + 1; } // functions.part.cu has another function of this name

__device__ unary_fn choices[3] = {triple, negate, local_step};
__constant__ unary_fn constant_choice = negate;

struct square : shape {
  int side;
  __device__ explicit square(int s) : side(s) {}
  __device__ int area() const override { return side * side; }
};

__global__ void by_table(const int *x, int *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    y[i] = choices[(unsigned)x[i] % 3](x[i]) + constant_choice(i);
}

__global__ void keep(unary_fn *kept) { *kept = local_step; }

__global__ void by_pointer(unary_fn const *kept, const int *x, int *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    y[i] = part_twice(*kept, x[i]);
}

__global__ void by_virtual(const int *x, int *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  square s(x[i] % 100);
  rectangle r(x[i] % 100, 3);
  const shape *chosen = x[i] & 1 ? (const shape *)&s : &r;
  y[i] = measure(chosen);
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 1999);
  std::mt19937 random(args.seed);
  int n = args.size, grid = (n + 95) / 96;
  std::vector<int> x(n);
  for (int &value : x)
    value = (int)(random() % 100000);
  int *dx = vgt_upload(x), *dy = vgt_upload(x);

  int new_bias = (int)(random() % 1000), other = 0;
  by_table<<<grid, 96>>>(dx, dy, n);
  CUDA(cudaGetLastError());
  std::vector<int> y = vgt_download(dy, n);
  for (int i = 0; i < n; i++) {
    int expected = (x[i] % 3 == 0 ? 3 * x[i] + 40 : x[i] % 3 == 1 ? -x[i] : x[i] + 1) - i;
    EXPECT(y[i] == expected, "by_table: element %d is %d instead of %d", i, y[i], expected);
  }

  CUDA(cudaMemcpyToSymbol(bias, &new_bias, sizeof bias));
  part_run(dx, dy, n);
  y = vgt_download(dy, n);
  for (int i = 0; i < n; i++)
    EXPECT(y[i] == 3 * x[i] + new_bias - 1, "part_run: element %d is %d", i, y[i]);
  CUDA(cudaMemcpyFromSymbol(&other, part_calls, sizeof other));
  EXPECT(other == n, "part_calls is %d instead of %d", other, n);

  unary_fn *kept;
  CUDA(cudaMalloc(&kept, sizeof *kept));
  keep<<<1, 1>>>(kept);
  by_pointer<<<grid, 96>>>(kept, dx, dy, n);
  CUDA(cudaGetLastError());
  y = vgt_download(dy, n);
  for (int i = 0; i < n; i++)
    EXPECT(y[i] == x[i] + 2, "by_pointer: element %d is %d instead of %d", i, y[i], x[i] + 2);

  by_virtual<<<grid, 96>>>(dx, dy, n);
  CUDA(cudaGetLastError());
  y = vgt_download(dy, n);
  for (int i = 0; i < n; i++) {
    int side = x[i] % 100, expected = 2 * (x[i] & 1 ? side * side : side * 3);
    EXPECT(y[i] == expected, "by_virtual: element %d is %d instead of %d", i, y[i], expected);
  }
  printf("ok functions\n");
  return 0;
}
