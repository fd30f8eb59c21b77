// Texture and surface references, as programs for CUDA 1 to 11 bind them; events and affinity of a context; a device's
// capabilities for atomic operations. Only a real card supports these.
#include <algorithm>
#include <cuda.h>
#include <string>
#include <type_traits>

#include "vgt_check.h"

static const char PTX[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .global .texref image;
.visible .global .surfref plane;
.visible .entry sample(.param .u64 out, .param .u32 width) {
  .reg .u64 %d<4>; .reg .u32 %r<6>; .reg .f32 %f<8>; .reg .pred %p;
  ld.param.u64 %d1, [out];
  ld.param.u32 %r1, [width];
  mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x;
  setp.ge.u32 %p, %r2, %r1;
  @%p bra done;
  cvt.rn.f32.u32 %f5, %r2; cvt.rn.f32.u32 %f6, %r3;
  add.f32 %f5, %f5, 0f3F000000; add.f32 %f6, %f6, 0f3F000000;
  tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [image, {%f5, %f6}];
  mad.lo.u32 %r4, %r3, %r1, %r2;
  mul.wide.u32 %d2, %r4, 4;
  add.u64 %d3, %d1, %d2;
  st.global.f32 [%d3], %f1;
done:
  ret;
}
.visible .entry negate(.param .u32 width) {
  .reg .u32 %r<6>; .reg .pred %p;
  ld.param.u32 %r1, [width];
  mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x;
  setp.ge.u32 %p, %r2, %r1;
  @%p bra done;
  shl.b32 %r4, %r2, 2;
  suld.b.2d.b32.trap {%r5}, [plane, {%r4, %r3}];
  xor.b32 %r5, %r5, 0x80000000;
  sust.b.2d.b32.trap [plane, {%r4, %r3}], {%r5};
done:
  ret;
}
)";

// The driver knows functions by their names without the _v2 or _v3 that cuda.h's macros append.
template <typename F> static F *entry(std::string name, unsigned version, F *) {
  void *function;
  cudaDriverEntryPointQueryResult found;
  name.resize(std::min(name.find("_v"), name.size()));
  CUDA(cudaGetDriverEntryPointByVersion(name.c_str(), &function, version, cudaEnableDefault, &found));
  EXPECT(found == cudaDriverEntryPointSuccess, "references: no %s", name.c_str());
  return (F *)function;
}
#define ANSWER(name, version, ...) entry(#name, version, (std::remove_pointer_t<decltype(&name)> *)nullptr)(__VA_ARGS__)
#define OK(name, ...)                                                                                                  \
  do {                                                                                                                 \
    CUresult result_ = ANSWER(name, 13000, __VA_ARGS__);                                                               \
    EXPECT(result_ == CUDA_SUCCESS, "references: %s: %d", #name, (int)result_);                                        \
  } while (0)

enum { WIDTH = 37, HEIGHT = 11 };

static void expect(const float *device, const std::vector<float> &wanted, float sign, const char *what) {
  CUDA(cudaDeviceSynchronize());
  std::vector<float> got = vgt_download(device, WIDTH * HEIGHT);
  for (int i = 0; i < WIDTH * HEIGHT; i++)
    EXPECT(got[i] == sign * wanted[i], "references: %s: element %d is %g instead of %g", what, i, got[i],
           sign * wanted[i]);
}

static void bound(std::vector<float> &values, float *out) {
  CUmodule module;
  CUfunction sample, negate;
  CUtexref image;
  CUsurfref plane;
  CUarray found;
  cudaArray_t array;
  cudaChannelFormatDesc channel = cudaCreateChannelDesc<float>();
  OK(cuModuleLoadData, &module, PTX);
  OK(cuModuleGetFunction, &sample, module, "sample");
  OK(cuModuleGetFunction, &negate, module, "negate");
  OK(cuModuleGetTexRef, &image, module, "image");
  OK(cuModuleGetSurfRef, &plane, module, "plane");
  EXPECT(ANSWER(cuModuleGetTexRef, 13000, &image, module, "no such") == CUDA_ERROR_NOT_FOUND, "references: no such");
  CUDA(cudaMallocArray(&array, &channel, WIDTH, HEIGHT, cudaArraySurfaceLoadStore));
  CUDA(cudaMemcpy2DToArray(array, 0, 0, values.data(), WIDTH * 4, WIDTH * 4, HEIGHT, cudaMemcpyHostToDevice));
  OK(cuTexRefSetArray, image, (CUarray)array, CU_TRSA_OVERRIDE_FORMAT);
  OK(cuTexRefGetArray, &found, image);
  EXPECT(found == (CUarray)array, "references: another array is bound");
  OK(cuTexRefSetFilterMode, image, CU_TR_FILTER_MODE_POINT);
  OK(cuTexRefSetAddressMode, image, 0, CU_TR_ADDRESS_MODE_CLAMP);
  CUaddress_mode mode = CU_TR_ADDRESS_MODE_BORDER;
  OK(cuTexRefGetAddressMode, &mode, image, 0);
  EXPECT(mode == CU_TR_ADDRESS_MODE_CLAMP, "references: address mode %d", (int)mode);
  int width = WIDTH;
  void *arguments[] = {&out, &width};
  OK(cuLaunchKernel, sample, HEIGHT, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr);
  expect(out, values, 1, "an array");
  OK(cuSurfRefSetArray, plane, (CUarray)array, 0);
  OK(cuSurfRefGetArray, &found, plane);
  EXPECT(found == (CUarray)array, "references: another array is a surface");
  OK(cuLaunchKernel, negate, HEIGHT, 1, 1, 64, 1, 1, 0, nullptr, arguments + 1, nullptr);
  OK(cuLaunchKernel, sample, HEIGHT, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr);
  expect(out, values, -1, "a surface");
  float *rows;
  size_t pitch;
  CUDA(cudaMallocPitch(&rows, &pitch, WIDTH * 4, HEIGHT));
  CUDA(cudaMemcpy2D(rows, pitch, values.data(), WIDTH * 4, WIDTH * 4, HEIGHT, cudaMemcpyHostToDevice));
  CUDA_ARRAY_DESCRIPTOR desc = {WIDTH, HEIGHT, CU_AD_FORMAT_FLOAT, 1};
  OK(cuTexRefSetAddress2D, image, &desc, (CUdeviceptr)rows, pitch);
  CUdeviceptr address = 0;
  OK(cuTexRefGetAddress, &address, image);
  EXPECT(address == (CUdeviceptr)rows, "references: another address is bound");
  OK(cuLaunchKernel, sample, HEIGHT, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr);
  expect(out, values, 1, "rows of memory");
  float color[4] = {1, 2, 3, 4}, told[4] = {};
  OK(cuTexRefSetBorderColor, image, color);
  OK(cuTexRefGetBorderColor, told, image);
  EXPECT(told[0] == 1 && told[3] == 4, "references: border %g %g", told[0], told[3]);
  OK(cuModuleUnload, module);
  CUDA(cudaFree(rows));
  CUDA(cudaFreeArray(array));
}

static void of_context() {
  CUcontext context;
  CUevent event;
  CUexecAffinityParam affinity = {};
  OK(cuCtxGetCurrent, &context);
  OK(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
  CUresult recorded = ANSWER(cuCtxRecordEvent, 13000, context, event); // may fail for a primary context
  printf("a context's event: %d\n", (int)recorded);
  if (recorded == CUDA_SUCCESS) {
    OK(cuEventSynchronize, event);
    OK(cuCtxWaitEvent, context, event);
  }
  printf("a context's affinity: %d\n",
         (int)ANSWER(cuCtxGetExecAffinity, 13000, &affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT));
  CUatomicOperation operation = CU_ATOMIC_OPERATION_INTEGER_ADD;
  unsigned capabilities = ~0u;
  printf("atomic operations on host memory: %d",
         (int)ANSWER(cuDeviceGetHostAtomicCapabilities, 13000, &capabilities, &operation, 1, 0));
  printf(", %#x\n", capabilities);
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 1);
  std::mt19937 random(args.seed);
  std::vector<float> values = vgt_floats(random, WIDTH * HEIGHT);
  float *out;
  CUDA(cudaMalloc(&out, WIDTH * HEIGHT * 4));
  bound(values, out);
  of_context();
  CUDA(cudaFree(out));
  printf("ok references\n");
  return 0;
}
