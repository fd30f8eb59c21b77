// The rounded weights of a card's linear texture filter: `filtering [samples]` prints, for random positions between the
// texels of a square and of a cube, the weight of each corner in 256ths. Each corner of a texture has its own channel.
#include <cstdio>
#include <cstdlib>
#include <random>

#include <cuda_runtime.h>

__global__ void square(cudaTextureObject_t t, const float *at, float4 *out) {
  *out = tex2D<float4>(t, at[0] + 0.5f, at[1] + 0.5f);
}
__global__ void cube(cudaTextureObject_t t, const float *at, float4 *out) {
  *out = tex3D<float4>(t, at[0] + 0.5f, at[1] + 0.5f, at[2] + 0.5f);
}

// A texture whose texel `first + i` has a 1 in channel i, for four corners; all else is 0.
static cudaTextureObject_t corners(int depth, int first) {
  float4 texels[8] = {};
  for (int i = 0; i < 4; i++)
    (&texels[first + i].x)[i] = 1;
  cudaChannelFormatDesc channel = cudaCreateChannelDesc<float4>();
  cudaArray_t array;
  cudaMalloc3DArray(&array, &channel, make_cudaExtent(2, 2, depth > 1 ? depth : 0));
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(texels, 2 * sizeof(float4), 2, 2);
  copy.dstArray = array;
  copy.extent = make_cudaExtent(2, 2, depth);
  copy.kind = cudaMemcpyHostToDevice;
  cudaMemcpy3D(&copy);
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaTextureDesc desc = {};
  desc.addressMode[0] = desc.addressMode[1] = desc.addressMode[2] = cudaAddressModeClamp;
  desc.filterMode = cudaFilterModeLinear;
  cudaTextureObject_t made = 0;
  cudaCreateTextureObject(&made, &resource, &desc, nullptr);
  return made;
}

int main(int argc, char **argv) {
  int samples = argc > 1 ? atoi(argv[1]) : 1000;
  cudaTextureObject_t flat = corners(1, 0), low = corners(2, 0), high = corners(2, 4);
  float *at;
  float4 *out;
  std::mt19937 random(1);
  cudaMallocManaged(&at, 3 * sizeof *at);
  cudaMallocManaged(&out, 3 * sizeof *out);
  for (int i = 0; i < samples; i++) {
    for (int a = 0; a < 3; a++)
      at[a] = (float)(random() % 1024) / 1024;
    square<<<1, 1>>>(flat, at, out);
    cube<<<1, 1>>>(low, at, out + 1);
    cube<<<1, 1>>>(high, at, out + 2);
    if (cudaError_t error = cudaDeviceSynchronize()) {
      printf("%s\n", cudaGetErrorName(error));
      return 1;
    }
    printf("%g %g %g:", at[0] * 256, at[1] * 256, at[2] * 256);
    for (int corner = 0; corner < 12; corner++)
      printf("%s%g", corner == 4 ? " | " : " ", (&out[0].x)[corner] * 256);
    printf("\n");
  }
  return 0;
}
