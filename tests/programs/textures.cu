// Arrays, textures and surfaces (NR16): every geometry, filter and address mode against the CPU, and all copies.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "vgt_check.h"

// ---- a texture as the documentation defines it

struct reference {
  int w, h, d;
  std::vector<float> texels;
  cudaTextureAddressMode mode;
  bool normalized, linear;

  int index(int i, int n) const {
    if (i >= 0 && i < n)
      return i;
    switch (mode) {
    case cudaAddressModeBorder:
      return -1;
    case cudaAddressModeWrap:
      return normalized ? (i % n + n) % n : i < 0 ? 0 : n - 1;
    case cudaAddressModeMirror: {
      int m = (i % (2 * n) + 2 * n) % (2 * n);
      return !normalized ? (i < 0 ? 0 : n - 1) : m < n ? m : 2 * n - 1 - m;
    }
    default:
      return i < 0 ? 0 : n - 1;
    }
  }
  float texel(int x, int y, int z) const {
    x = index(x, w), y = index(y, h), z = index(z, d);
    return x < 0 || y < 0 || z < 0 ? 0 : texels[((size_t)z * h + y) * w + x];
  }
  // Weights have 8 bits. An H200 splits them along z, then x, then y, into whole 256ths (tests/gpu/filtering.cu).
  float at(float x, float y, float z) const {
    float scaled[3] = {x, y, z};
    int extent[3] = {w, h, d}, first[3], part[3];
    for (int a = 0; a < 3; a++) {
      scaled[a] = (normalized ? scaled[a] * extent[a] : scaled[a]) - (linear ? 0.5f : 0);
      if (linear && (mode == cudaAddressModeClamp || (mode != cudaAddressModeBorder && !normalized)))
        scaled[a] = std::fmin(std::fmax(scaled[a], 0.0f), extent[a] - 1.0f); // before the weights are computed
      int place = (int)std::floor(scaled[a] * 256 + (linear ? 0.5f : 0));    // rounded before it is split
      first[a] = place >> 8;
      part[a] = linear ? place & 255 : 0;
    }
    float sum = 0;
    for (int i = 0; i < 8; i++) {
      int plane = i >> 2 ? part[2] : 256 - part[2], right = (plane * part[0] + 128) / 256;
      int column = i & 1 ? right : plane - right, upper = (column * part[1] + (i & 1 ? 128 : 127)) / 256;
      int weight = i >> 1 & 1 ? upper : column - upper;
      if (weight)
        sum += weight / 256.0f * texel(first[0] + (i & 1), first[1] + (i >> 1 & 1), first[2] + (i >> 2));
    }
    return sum;
  }
};

__global__ void sample(cudaTextureObject_t t, int axes, const float *x, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  const float *at = x + 3 * i;
  out[i] = axes == 1   ? tex1D<float>(t, at[0])
           : axes == 2 ? tex2D<float>(t, at[0], at[1])
                       : tex3D<float>(t, at[0], at[1], at[2]);
}

static cudaTextureObject_t texture_of(const cudaResourceDesc &resource, cudaTextureAddressMode mode,
                                      cudaTextureFilterMode filter, cudaTextureReadMode read, bool normalized) {
  cudaTextureDesc desc = {};
  for (int i = 0; i < 3; i++)
    desc.addressMode[i] = mode;
  desc.filterMode = filter;
  desc.readMode = read;
  desc.normalizedCoords = normalized;
  desc.maxMipmapLevelClamp = 99;
  desc.mipmapFilterMode = filter;
  cudaTextureObject_t made = 0;
  CUDA(cudaCreateTextureObject(&made, &resource, &desc, nullptr));
  return made;
}

static cudaResourceDesc resource_of(cudaArray_t array) {
  cudaResourceDesc desc = {};
  desc.resType = cudaResourceTypeArray;
  desc.res.array.array = array;
  return desc;
}

static void filters(std::mt19937 &random, int n) {
  const int extents[][3] = {{17, 1, 1}, {13, 7, 1}, {5, 6, 7}};
  float *device_x, *device_out;
  CUDA(cudaMalloc(&device_x, 12 * n));
  CUDA(cudaMalloc(&device_out, 4 * n));
  for (int axes = 1; axes <= 3; axes++) {
    const int *e = extents[axes - 1];
    reference r = {e[0], e[1], e[2], std::vector<float>(e[0] * e[1] * e[2]), cudaAddressModeClamp, false, false};
    for (float &v : r.texels)
      v = (float)(random() % 2000) / 16 - 60;
    cudaChannelFormatDesc channel = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    CUDA(cudaMalloc3DArray(&array, &channel, make_cudaExtent(e[0], axes > 1 ? e[1] : 0, axes > 2 ? e[2] : 0)));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(r.texels.data(), e[0] * 4, e[0], e[1]);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(e[0], e[1], e[2]);
    copy.kind = cudaMemcpyHostToDevice;
    CUDA(cudaMemcpy3D(&copy));
    for (int form = 0; form < 16; form++) {
      r.mode = (cudaTextureAddressMode)(form & 3);
      r.linear = form >> 2 & 1;
      r.normalized = form >> 3;
      cudaTextureObject_t t =
          texture_of(resource_of(array), r.mode, r.linear ? cudaFilterModeLinear : cudaFilterModePoint,
                     cudaReadModeElementType, r.normalized);
      std::vector<float> x(3 * n), out(n);
      for (int i = 0; i < 3 * n; i++)
        x[i] = ((float)(random() % 4096) / 1024 - 1.5f) * (r.normalized ? 1 : e[i % 3]);
      CUDA(cudaMemcpy(device_x, x.data(), 12 * n, cudaMemcpyHostToDevice));
      sample<<<(n + 127) / 128, 128>>>(t, axes, device_x, device_out, n);
      CUDA(cudaMemcpy(out.data(), device_out, 4 * n, cudaMemcpyDeviceToHost));
      for (int i = 0; i < n; i++) {
        // A 1D texture counts as a 2D one that is read at y = 0: in border mode, half of each value is the border's.
        float middle = r.linear ? 0.5f : 0;
        float wanted = r.at(x[3 * i], axes > 1 ? x[3 * i + 1] : 0, axes > 2 ? x[3 * i + 2] : middle);
        EXPECT(std::fabs(out[i] - wanted) <= 1e-3f * (1 + std::fabs(wanted)),
               "textures: %d axes, mode %d, linear %d, normalized %d: (%g, %g, %g) is %g instead of %g", axes,
               (int)r.mode, (int)r.linear, (int)r.normalized, x[3 * i], x[3 * i + 1], x[3 * i + 2], out[i], wanted);
      }
      CUDA(cudaDestroyTextureObject(t));
    }
    CUDA(cudaFreeArray(array));
  }
  CUDA(cudaFree(device_x));
  CUDA(cudaFree(device_out));
}

// ---- formats, fetches, layers, cubes, levels, gathers

__global__ void formats(cudaTextureObject_t bytes, cudaTextureObject_t fractions, cudaTextureObject_t linear, int4 *out,
                        float4 *f) {
  int i = threadIdx.x;
  uchar4 b = tex2D<uchar4>(bytes, i + 0.5f, 1.5f);
  out[i] = make_int4(b.x, b.y, b.z, b.w);
  f[i] = tex2D<float4>(fractions, i + 0.5f, 1.5f);
  int2 pair = tex1Dfetch<int2>(linear, i - 2); // the first two lie before the memory, the last ones behind it
  out[8 + i] = make_int4(pair.x, pair.y, 0, 0);
}

static void element_types() {
  unsigned char texels[2][8][4];
  for (int i = 0; i < 64; i++)
    texels[0][0][i] = 3 * i + 5;
  cudaChannelFormatDesc channel = cudaCreateChannelDesc<uchar4>();
  cudaArray_t array;
  CUDA(cudaMallocArray(&array, &channel, 8, 2));
  CUDA(cudaMemcpy2DToArray(array, 0, 0, texels, 32, 32, 2, cudaMemcpyHostToDevice));
  int2 pairs[4] = {{1, -1}, {2, -2}, {3, -3}, {4, -4}}, *device;
  CUDA(cudaMalloc(&device, sizeof pairs));
  CUDA(cudaMemcpy(device, pairs, sizeof pairs, cudaMemcpyHostToDevice));
  cudaResourceDesc linear = {};
  linear.resType = cudaResourceTypeLinear;
  linear.res.linear.devPtr = device;
  linear.res.linear.desc = cudaCreateChannelDesc<int2>();
  linear.res.linear.sizeInBytes = 4 * sizeof pairs; // more than is allocated; the rest is not read
  cudaTextureObject_t bytes = texture_of(resource_of(array), cudaAddressModeClamp, cudaFilterModePoint,
                                         cudaReadModeElementType, false),
                      fractions = texture_of(resource_of(array), cudaAddressModeClamp, cudaFilterModePoint,
                                             cudaReadModeNormalizedFloat, false),
                      fetched =
                          texture_of(linear, cudaAddressModeClamp, cudaFilterModePoint, cudaReadModeElementType, false);
  int4 *out, host[16];
  float4 *f, host_f[8];
  CUDA(cudaMalloc(&out, sizeof host));
  CUDA(cudaMalloc(&f, sizeof host_f));
  formats<<<1, 8>>>(bytes, fractions, fetched, out, f);
  CUDA(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
  CUDA(cudaMemcpy(host_f, f, sizeof host_f, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 8; i++) {
    const unsigned char *t = texels[1][i];
    EXPECT(host[i].x == t[0] && host[i].w == t[3], "textures: bytes %d: %d %d", i, host[i].x, host[i].w);
    EXPECT(std::fabs(host_f[i].y - t[1] / 255.f) < 1e-6f, "textures: fraction %d: %g", i, host_f[i].y);
    int wanted = i < 2 || i >= 6 ? 0 : pairs[i - 2].y;
    EXPECT(host[8 + i].y == wanted, "textures: fetch %d: %d instead of %d", i - 2, host[8 + i].y, wanted);
  }
  cudaResourceDesc asked;
  CUDA(cudaGetTextureObjectResourceDesc(&asked, fetched));
  EXPECT(asked.res.linear.devPtr == device, "textures: resource description");
  CUDA(cudaDestroyTextureObject(fetched));
  CUDA(cudaDestroyTextureObject(bytes));
  CUDA(cudaDestroyTextureObject(fractions));
  CUDA(cudaFreeArray(array));
}

__global__ void shapes(cudaTextureObject_t layered, cudaTextureObject_t cube, cudaTextureObject_t mipmap, float *out) {
  for (int layer = 0; layer < 5; layer++)
    out[layer] = tex2DLayered<float>(layered, 1.5f, 2.5f, layer);
  out[5] = texCubemap<float>(cube, 1, 0.1f, 0.2f);
  out[6] = texCubemap<float>(cube, -1, 0.1f, 0.2f);
  out[7] = texCubemap<float>(cube, 0.1f, 1, 0.2f);
  out[8] = texCubemap<float>(cube, 0.1f, -1, 0.2f);
  out[9] = texCubemap<float>(cube, 0.1f, 0.2f, 1);
  out[10] = texCubemap<float>(cube, 0.1f, 0.2f, -1);
  for (int level = 0; level < 4; level++)
    out[11 + level] = tex2DLod<float>(mipmap, 0.3f, 0.3f, level);
  out[15] = tex2DLod<float>(mipmap, 0.3f, 0.3f, 0.5f);
  out[16] = tex2DGrad<float>(mipmap, 0.3f, 0.3f, make_float2(0.25f, 0), make_float2(0, 0.125f));
}

static cudaArray_t stack_of(int size, int layers, unsigned flags, std::vector<float> &texels) {
  cudaChannelFormatDesc channel = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  texels.resize(size * size * layers);
  for (size_t i = 0; i < texels.size(); i++)
    texels[i] = (float)i;
  CUDA(cudaMalloc3DArray(&array, &channel, make_cudaExtent(size, size, layers), flags));
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(texels.data(), size * 4, size, size);
  copy.dstArray = array;
  copy.extent = make_cudaExtent(size, size, layers);
  copy.kind = cudaMemcpyHostToDevice;
  CUDA(cudaMemcpy3D(&copy));
  return array;
}

static void geometries() {
  std::vector<float> layers, faces;
  cudaArray_t layered = stack_of(4, 3, cudaArrayLayered, layers), cube = stack_of(4, 6, cudaArrayCubemap, faces), level;
  cudaMipmappedArray_t mipmap;
  cudaChannelFormatDesc channel = cudaCreateChannelDesc<float>();
  CUDA(cudaMallocMipmappedArray(&mipmap, &channel, make_cudaExtent(8, 8, 0), 4));
  for (int i = 0; i < 4; i++) {
    std::vector<float> values(64, 10.f * (i + 1));
    cudaExtent extent;
    CUDA(cudaGetMipmappedArrayLevel(&level, mipmap, i));
    CUDA(cudaArrayGetInfo(&channel, &extent, nullptr, level));
    EXPECT((int)extent.width == 8 >> i, "textures: level %d is %zu wide", i, extent.width);
    CUDA(cudaMemcpy2DToArray(level, 0, 0, values.data(), 32, extent.width * 4, extent.height, cudaMemcpyHostToDevice));
  }
  cudaResourceDesc levels = {};
  levels.resType = cudaResourceTypeMipmappedArray;
  levels.res.mipmap.mipmap = mipmap;
  cudaTextureObject_t t[] = {
      texture_of(resource_of(layered), cudaAddressModeClamp, cudaFilterModePoint, cudaReadModeElementType, false),
      texture_of(resource_of(cube), cudaAddressModeClamp, cudaFilterModePoint, cudaReadModeElementType, true),
      texture_of(levels, cudaAddressModeClamp, cudaFilterModeLinear, cudaReadModeElementType, true)};
  float *out, host[17];
  CUDA(cudaMalloc(&out, sizeof host));
  shapes<<<1, 1>>>(t[0], t[1], t[2], out);
  CUDA(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 5; i++) // indices beyond the last layer read the last layer
    EXPECT(host[i] == layers[16 * (i < 3 ? i : 2) + 9], "textures: layer %d: %g", i, host[i]);
  for (int face = 0; face < 6; face++)
    EXPECT((int)host[5 + face] / 16 == face, "textures: face %d: %g", face, host[5 + face]);
  EXPECT((int)host[5] == 5, "textures: face 0 is %g", host[5]); // s = -0.2, t = -0.1: texel (1, 1)
  for (int i = 0; i < 4; i++)
    EXPECT(host[11 + i] == 10.f * (i + 1), "textures: level %d: %g", i, host[11 + i]);
  EXPECT(host[15] == 15 && host[16] == 20, "textures: between levels %g, by gradients %g", host[15], host[16]);
  for (cudaTextureObject_t each : t)
    CUDA(cudaDestroyTextureObject(each));
  CUDA(cudaFreeMipmappedArray(mipmap));
  CUDA(cudaFreeArray(layered));
  CUDA(cudaFreeArray(cube));
}

__global__ void gathered(cudaTextureObject_t t, float4 *out) { *out = tex2Dgather<float4>(t, 2.0f, 3.0f, 1); }

static void gathers() {
  float2 texels[16];
  for (int i = 0; i < 16; i++)
    texels[i] = make_float2(i, 100 + i);
  cudaChannelFormatDesc channel = cudaCreateChannelDesc<float2>();
  cudaArray_t array;
  CUDA(cudaMallocArray(&array, &channel, 4, 4, cudaArrayTextureGather));
  CUDA(cudaMemcpy2DToArray(array, 0, 0, texels, 32, 32, 4, cudaMemcpyHostToDevice));
  cudaTextureObject_t t =
      texture_of(resource_of(array), cudaAddressModeClamp, cudaFilterModePoint, cudaReadModeElementType, false);
  float4 *out, host;
  CUDA(cudaMalloc(&out, sizeof host));
  gathered<<<1, 1>>>(t, out);
  CUDA(cudaMemcpy(&host, out, sizeof host, cudaMemcpyDeviceToHost));
  EXPECT(host.x == 113 && host.y == 114 && host.z == 110 && host.w == 109, "textures: gather %g %g %g %g", host.x,
         host.y, host.z, host.w);
  CUDA(cudaDestroyTextureObject(t));
  CUDA(cudaFreeArray(array));
}

// ---- surfaces

__global__ void turn(cudaSurfaceObject_t from, cudaSurfaceObject_t to, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  if (x >= w)
    return;
  uint16_t v;
  surf2Dread(&v, from, x * 2, y);
  surf2Dwrite((uint16_t)(v + 1), to, y * 2, w - 1 - x);
}

__global__ void edges(cudaSurfaceObject_t s, int *out) {
  out[0] = surf2Dread<uint16_t>(s, -2, 0, cudaBoundaryModeZero);
  out[1] = surf2Dread<uint16_t>(s, -2, 0, cudaBoundaryModeClamp);
  surf2Dwrite((uint16_t)77, s, 1 << 20, 0, cudaBoundaryModeZero); // out of bounds: dropped
}

__global__ void trapped(cudaSurfaceObject_t s, int *out) { out[0] = surf2Dread<uint16_t>(s, 0, 1000); }

static void surfaces(std::mt19937 &random, int n) {
  int w = 1 + n % 61, h = 1 + n % 37;
  std::vector<uint16_t> values(w * h), turned(w * h);
  for (uint16_t &v : values)
    v = random();
  cudaChannelFormatDesc channel = cudaCreateChannelDesc<unsigned short>();
  cudaArray_t from, to, plain;
  CUDA(cudaMallocArray(&from, &channel, w, h, cudaArraySurfaceLoadStore));
  CUDA(cudaMallocArray(&to, &channel, h, w, cudaArraySurfaceLoadStore));
  CUDA(cudaMallocArray(&plain, &channel, w, h));
  CUDA(cudaMemcpy2DToArray(plain, 0, 0, values.data(), w * 2, w * 2, h, cudaMemcpyHostToDevice));
  CUDA(cudaMemcpy2DArrayToArray(from, 0, 0, plain, 0, 0, w * 2, h, cudaMemcpyDeviceToDevice));
  cudaSurfaceObject_t a, b;
  cudaResourceDesc r = resource_of(from), q = resource_of(to), p = resource_of(plain);
  CUDA(cudaCreateSurfaceObject(&a, &r));
  CUDA(cudaCreateSurfaceObject(&b, &q));
  cudaSurfaceObject_t c;
  CUDA(cudaCreateSurfaceObject(&c, &p)); // works without cudaArraySurfaceLoadStore
  CUDA(cudaDestroySurfaceObject(c));
  turn<<<dim3((w + 31) / 32, h), 32>>>(a, b, w, h);
  CUDA(cudaMemcpy2DFromArray(turned.data(), h * 2, to, 0, 0, h * 2, w, cudaMemcpyDeviceToHost));
  for (int y = 0; y < h; y++)
    for (int x = 0; x < w; x++)
      EXPECT(turned[(w - 1 - x) * h + y] == (uint16_t)(values[y * w + x] + 1), "textures: surface at %d, %d", x, y);
  uint16_t *pinned, *device; // the remaining kinds of copies
  size_t pitch;
  CUDA(cudaMallocHost(&pinned, w * h * 2));
  CUDA(cudaMallocPitch(&device, &pitch, w * 2, h));
  CUDA(cudaMemcpy2DFromArray(device, pitch, from, 0, 0, w * 2, h, cudaMemcpyDeviceToDevice));
  CUDA(cudaMemcpy2D(pinned, w * 2, device, pitch, w * 2, h, cudaMemcpyDeviceToHost));
  EXPECT(!memcmp(pinned, values.data(), w * h * 2), "textures: array to memory");
  CUDA(cudaMemset2D(device, pitch, 0, w * 2, h));
  CUDA(cudaMemcpy2DToArray(from, 0, 0, device, pitch, w * 2, h, cudaMemcpyDeviceToDevice));
  CUDA(cudaMemcpy2DFromArray(pinned, w * 2, from, 0, 0, w * 2, h, cudaMemcpyDeviceToHost));
  EXPECT(pinned[0] == 0 && pinned[w * h - 1] == 0, "textures: memory to array");
  int *out, host[2] = {9, 9};
  CUDA(cudaMalloc(&out, 8));
  CUDA(cudaMemcpy2DToArray(from, 0, 0, values.data(), w * 2, w * 2, h, cudaMemcpyHostToDevice));
  edges<<<1, 1>>>(a, out);
  CUDA(cudaMemcpy(host, out, 8, cudaMemcpyDeviceToHost));
  EXPECT(host[0] == 0 && host[1] == values[0], "textures: edges %d %d", host[0], host[1]);
  CUDA(cudaDestroySurfaceObject(b));
  trapped<<<1, 1>>>(a, out); // last, because the fault ends the context
  EXPECT(cudaDeviceSynchronize() != cudaSuccess, "textures: an access beyond the edge went on");
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 5003);
  std::mt19937 random(args.seed);
  filters(random, args.size);
  element_types();
  geometries();
  gathers();
  surfaces(random, args.size);
  printf("ok textures\n");
  return 0;
}
