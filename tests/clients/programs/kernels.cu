extern "C" __global__ void scale_and_index(float *data, int n, float factor, char addend) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    data[i] = data[i] * factor + addend + i;
}
