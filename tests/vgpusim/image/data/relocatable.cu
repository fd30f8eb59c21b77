extern "C" __device__ float scale(float x);
extern "C" __global__ void use(float *y) { y[threadIdx.x] = scale(y[threadIdx.x]); }
