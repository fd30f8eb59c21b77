// The driver's linker links a kernel in one PTX text with the function and the variable that it uses in another.
#include <cuda.h>

#include "vgt_check.h"

#define DRIVER(call)                                                                                                   \
  do {                                                                                                                 \
    CUresult result_ = (call);                                                                                         \
    EXPECT(result_ == CUDA_SUCCESS, "%s:%d: %s: %d", __FILE__, __LINE__, #call, (int)result_);                         \
  } while (0)

#define HEADER ".version 7.0\n.target sm_75\n.address_size 64\n"

static const char user[] = HEADER R"(
.extern .func (.param .b32 r) scale(.param .b32 x);
.extern .global .align 4 .u32 shift;
.visible .entry kernel(.param .u64 data, .param .u32 n) {
  .reg .b32 %r<8>; .reg .b64 %x<3>; .reg .pred %p;
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r1, %r1, %r2, %r3;
  ld.param.u32 %r4, [n]; setp.ge.u32 %p, %r1, %r4; @%p bra end;
  ld.param.u64 %x1, [data]; cvta.to.global.u64 %x1, %x1; mad.wide.u32 %x1, %r1, 4, %x1; ld.global.u32 %r5, [%x1];
  { .param .b32 p; .param .b32 q; st.param.b32 [p], %r5; call.uni (q), scale, (p); ld.param.b32 %r5, [q]; }
  ld.global.u32 %r6, [shift]; add.u32 %r5, %r5, %r6; st.global.u32 [%x1], %r5;
end: ret;
}
)";

static const char owner[] = HEADER R"(
.visible .global .align 4 .u32 shift = 17;
.visible .func (.param .b32 r) scale(.param .b32 x) {
  .reg .b32 %r<2>; ld.param.u32 %r1, [x]; mul.lo.u32 %r1, %r1, 5; st.param.b32 [r], %r1; ret;
}
)";

// The runtime looks up functions by names without version suffixes.
template <typename F> static F entry_point(F, const char *name) {
  void *found = nullptr;
  cudaDriverEntryPointQueryResult status;
  CUDA(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &status));
  EXPECT(status == cudaDriverEntryPointSuccess, "%s: %d", name, (int)status);
  return (F)found;
}
#define FUNCTION(name, type) entry_point(decltype (&type)(nullptr), #name)

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 1999);
  std::mt19937 random(args.seed);
  std::vector<unsigned> x(args.size);
  for (unsigned &value : x)
    value = (unsigned)random();
  unsigned *dx = vgt_upload(x);

  CUlinkState state;
  void *cubin;
  size_t nbytes, shift_nbytes;
  DRIVER(FUNCTION(cuLinkCreate, cuLinkCreate_v2)(0, nullptr, nullptr, &state));
  auto add = FUNCTION(cuLinkAddData, cuLinkAddData_v2);
  DRIVER(add(state, CU_JIT_INPUT_PTX, (void *)user, sizeof user, "user", 0, nullptr, nullptr));
  DRIVER(add(state, CU_JIT_INPUT_PTX, (void *)owner, sizeof owner, "owner", 0, nullptr, nullptr));
  DRIVER(FUNCTION(cuLinkComplete, cuLinkComplete)(state, &cubin, &nbytes));
  CUmodule module;
  CUfunction kernel;
  CUdeviceptr shift;
  DRIVER(FUNCTION(cuModuleLoadData, cuModuleLoadData)(&module, cubin));
  DRIVER(FUNCTION(cuLinkDestroy, cuLinkDestroy)(state));
  DRIVER(FUNCTION(cuModuleGetFunction, cuModuleGetFunction)(&kernel, module, "kernel"));
  DRIVER(FUNCTION(cuModuleGetGlobal, cuModuleGetGlobal_v2)(&shift, &shift_nbytes, module, "shift"));
  EXPECT(shift_nbytes == 4, "shift has %zu bytes", shift_nbytes);

  auto launch = FUNCTION(cuLaunchKernel, cuLaunchKernel);
  void *parameters[] = {&dx, &args.size};
  unsigned grid = (unsigned)(args.size + 127) / 128, amount = (unsigned)random();
  DRIVER(launch(kernel, grid, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr));
  CUDA(cudaMemcpy((void *)shift, &amount, sizeof amount, cudaMemcpyHostToDevice));
  DRIVER(launch(kernel, grid, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr));
  std::vector<unsigned> y = vgt_download(dx, args.size);
  for (int i = 0; i < args.size; i++)
    EXPECT(y[i] == (x[i] * 5 + 17) * 5 + amount, "element %d is %u", i, y[i]);
  DRIVER(FUNCTION(cuModuleUnload, cuModuleUnload)(module));
  printf("ok linker\n");
  return 0;
}
