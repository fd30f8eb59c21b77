/* Makes the calls that an H100 answered in answers.txt, most of them wrong on purpose, and prints each answer as a line
 * of that file. Without an argument: all calls but the faults. With `bad` or `trap`: the calls of a process after that
 * kernel's fault. */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ASK(...)                                                                                                       \
  do {                                                                                                                 \
    CUresult result = (__VA_ARGS__);                                                                                   \
    printf("%s => %d\n", #__VA_ARGS__, result);                                                                        \
    fflush(stdout);                                                                                                    \
  } while (0)

static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n.global .u32 gv;\n"
                          ".visible .entry k(.param .u64 a) { ret; }\n"
                          ".visible .entry k2(.param .u64 a, .param .u32 b) { ret; }\n"
                          ".visible .entry bad(.param .u64 a) { .reg .u64 %rd<2>; mov.u64 %rd1, 0xdead0000;"
                          " st.global.u32 [%rd1], 1; ret; }\n"
                          ".visible .entry trap() { trap; }\n";

/* These variables have the names that the calls in answers.txt use. */
static int n, mt, pr;
static unsigned u;
static float ms;
static char b[64];
static size_t f, t, sz, pitch;
static CUdevice d;
static CUcontext c, c2, x;
static CUdeviceptr p, base, dp;
static CUstream s;
static CUevent e, e2;
static CUmodule m, lm;
static CUfunction k;
static CUlibrary L;
static CUkernel K;
static CUlinkState ls;
static CUstreamCaptureStatus cs;
static CUgraph g;
static CUipcMemHandle ih;
static CUmemGenericAllocationHandle mh;
static CUmemAllocationProp ap = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static void *h, *cb;
static char *host, *reg;
static CUdeviceptr argument;
static void *args[] = {&argument};
static int memory_type, managed;
static void *device_pointer;
static CUpointer_attribute at[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED};
static void *oo[] = {&memory_type, &device_pointer, &managed};
static CUdeviceptr block[2];
static size_t block_nbytes;
static void *ex[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, block, CU_LAUNCH_PARAM_BUFFER_SIZE, &block_nbytes,
                     CU_LAUNCH_PARAM_END};

static void buffer_params(size_t nbytes) { block_nbytes = nbytes; }

static void before_init(void) {
  const char *s;
  ASK(cuDeviceGetCount(&n));
  ASK(cuDeviceGet(&d, 0));
  ASK(cuCtxGetCurrent(&c));
  ASK(cuCtxSynchronize());
  ASK(cuMemGetInfo(&f, &t));
  ASK(cuMemAlloc((CUdeviceptr *)&p, 16));
  ASK(cuDriverGetVersion(&n));
  ASK(cuGetErrorName(CUDA_SUCCESS, &s));
  ASK(cuDeviceGetName(b, 64, 0));
  ASK(cuStreamSynchronize(0));
  ASK(cuDevicePrimaryCtxRetain(&c, 0));
  ASK(cuInit(1));
  ASK(cuInit(0));
  ASK(cuInit(0));
}

static void devices(void) {
  ASK(cuDeviceGet(&d, -1));
  ASK(cuDeviceGet(&d, 99));
  ASK(cuDeviceGet(NULL, 0));
  ASK(cuDeviceGet(&d, 0));
  ASK(cuDeviceGetCount(NULL));
  ASK(cuDeviceGetName(b, 4, 0));
  ASK(cuDeviceGetName(NULL, 64, 0));
  ASK(cuDeviceGetName(b, 64, 77));
  ASK(cuDeviceGetAttribute(&n, (CUdevice_attribute)9999, 0));
  ASK(cuDeviceGetAttribute(&n, (CUdevice_attribute)0, 0));
  ASK(cuDeviceGetAttribute(NULL, (CUdevice_attribute)16, 0));
  ASK(cuDeviceTotalMem(NULL, 0));
  ASK(cuDeviceGetPCIBusId(b, 5, 0));
  ASK(cuDeviceGetPCIBusId(b, 13, 0));
  ASK(cuDeviceGetByPCIBusId(&d, "ffff:ff:ff.f"));
  ASK(cuDeviceGetByPCIBusId(&d, "garbage"));
  ASK(cuDeviceCanAccessPeer(&n, 0, 0));
  ASK(cuDeviceGetUuid(NULL, 0));
  ASK(cuDeviceGetP2PAttribute(&n, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
}

static void without_context(void) {
  ASK(cuCtxGetCurrent(&c));
  ASK(cuCtxGetDevice(&d));
  ASK(cuCtxSynchronize());
  ASK(cuMemAlloc(&p, 16));
  ASK(cuMemGetInfo(&f, &t));
  ASK(cuModuleLoadData(&m, ptx));
  ASK(cuStreamCreate(&s, 0));
  ASK(cuStreamSynchronize(0));
  ASK(cuCtxPopCurrent(&c));
  ASK(cuEventCreate(&e, 0));
  ASK(cuMemHostAlloc(&h, 4096, 0));
  ASK(cuPointerGetAttribute(&n, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)0));
  ASK(cuLaunchKernel(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0));
  ASK(cuDevicePrimaryCtxRelease(0));
  ASK(cuDevicePrimaryCtxGetState(0, &u, &n));
  ASK(cuDevicePrimaryCtxRetain(&c, 5));
  ASK(cuDevicePrimaryCtxRetain(&c, 0));
  ASK(cuCtxSetCurrent(c));
  ASK(cuCtxGetDevice(NULL));
  ASK(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_BLOCKING_SYNC));
  ASK(cuDevicePrimaryCtxSetFlags(0, 0xffff));
  ASK(cuCtxGetFlags(&u));
  ASK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1 << 30));
  ASK(cuCtxSetLimit((CUlimit)99, 1));
  ASK(cuCtxGetLimit(NULL, CU_LIMIT_STACK_SIZE));
}

static void memory(void) {
  ASK(cuMemAlloc(&p, 0));
  ASK(cuMemAlloc(NULL, 16));
  ASK(cuMemAlloc(&p, (size_t)1 << 50));
  ASK(cuMemAlloc(&p, ~(size_t)0));
  ASK(cuMemAlloc(&p, 1));
  ASK(cuMemFree(p + 1));
  ASK(cuMemFree(p));
  ASK(cuMemFree(p));
  ASK(cuMemFree(0));
  ASK(cuMemFree(0x1234));
  ASK(cuMemAlloc(&p, 4096));
  ASK(cuMemcpyHtoD(p, host, 0));
  ASK(cuMemcpyHtoD(p, NULL, 16));
  ASK(cuMemcpyHtoD(0, host, 16));
  ASK(cuMemcpyHtoD(p, host, 8192));
  ASK(cuMemcpyDtoH(host, p + 4090, 16));
  ASK(cuMemcpyHtoD(0x100, host, 4));
  ASK(cuMemcpyDtoD(p, p + 8, 64));
  ASK(cuMemcpy((CUdeviceptr)host, p, 64));
  ASK(cuMemcpy(p, (CUdeviceptr)host, 64));
  ASK(cuMemcpyPeer(p, c, p, c, 16));
  ASK(cuMemsetD8(p, 1, 4096));
  ASK(cuMemsetD8(p, 1, 4097));
  ASK(cuMemsetD32(p + 1, 1, 1));
  ASK(cuMemsetD32(p, 1, 0));
  ASK(cuMemsetD2D8(p, 8, 0, 16, 2));
  ASK(cuMemHostAlloc(&h, 0, 0));
  ASK(cuMemHostAlloc(&h, 100, 0xffff));
  ASK(cuMemHostAlloc(&h, 100, 0));
  ASK(cuMemHostGetDevicePointer(&p, h, 0));
  ASK(cuMemFreeHost(h));
  ASK(cuMemFreeHost(h));
  ASK(cuMemFreeHost(NULL));
  ASK(cuMemHostRegister(reg, 1 << 16, 0));
  ASK(cuMemHostRegister(reg, 1 << 16, 0));
  ASK(cuMemHostRegister(reg + 4096, 16, 0));
  ASK(cuMemHostUnregister(reg));
  ASK(cuMemHostUnregister(reg));
  ASK(cuMemHostGetDevicePointer(&p, reg, 0));
  ASK(cuMemHostRegister((void *)16, 4096, 0));
  ASK(cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL));
  ASK(cuMemFree(p));
  ASK(cuMemAllocPitch(&p, &pitch, 100, 10, 4));
  ASK(cuMemAllocPitch(&p, &pitch, 100, 10, 3));
  ASK(cuMemAlloc(&p, 10000));
  ASK(cuMemGetAddressRange(&base, &sz, p + 100));
  ASK(cuMemGetAddressRange(NULL, &sz, p));
  ASK(cuMemGetAddressRange(&base, &sz, 0x10));
  ASK(cuPointerGetAttribute(&mt, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 5));
  ASK(cuPointerGetAttribute(&mt, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)host));
  ASK(cuPointerGetAttribute(&dp, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p));
  ASK(cuPointerGetAttributes(3, at, oo, (CUdeviceptr)host));
  ASK(cuPointerGetAttributes(3, at, oo, p));
}

static void streams_and_events(void) {
  ASK(cuStreamCreate(NULL, 0));
  ASK(cuStreamCreate(&s, 99));
  ASK(cuStreamCreate(&s, 0));
  ASK(cuStreamQuery(s));
  ASK(cuStreamQuery(0));
  ASK(cuStreamQuery((CUstream)2));
  ASK(cuStreamGetFlags(s, &u));
  ASK(cuStreamGetPriority(s, &pr));
  ASK(cuEventCreate(&e, 99));
  ASK(cuEventCreate(&e, 0));
  ASK(cuEventCreate(&e2, CU_EVENT_DISABLE_TIMING));
  ASK(cuEventQuery(e));
  ASK(cuEventSynchronize(e));
  ASK(cuEventElapsedTime(&ms, e, e));
  ASK(cuEventRecord(e, s));
  ASK(cuEventRecord(e2, s));
  ASK(cuEventSynchronize(e2));
  ASK(cuEventElapsedTime(&ms, e, e2));
  ASK(cuStreamWaitEvent(s, e, 99));
  ASK(cuStreamWaitEvent(s, e, 0));
  ASK(cuEventDestroy(e));
  ASK(cuStreamIsCapturing(s, &cs));
  ASK(cuStreamEndCapture(s, NULL));
  ASK(cuStreamEndCapture(s, &g));
  ASK(cuStreamBeginCapture(0, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASK(cuStreamSynchronize(s));
  ASK(cuStreamQuery(s));
  ASK(cuMemAlloc(&base, 16));
  ASK(cuStreamEndCapture(s, &g));
  ASK(cuStreamDestroy(s));
  ASK(cuStreamAddCallback(0, NULL, NULL, 0));
  ASK(cuLaunchHostFunc(0, NULL, NULL));
}

static void modules_and_launches(void) {
  ASK(cuModuleLoadData(&m, "garbage"));
  ASK(cuModuleLoadData(&m, ".version 99.9\n.target sm_70\n"));
  ASK(cuModuleLoadData(&m, ".version 7.0\n.target sm_999\n.address_size 64\n"));
  ASK(cuModuleLoadData(&m, ".version 7.0\n.target sm_70\n.address_size 64\n.entry x(){ bogus.u32 %r1; }\n"));
  ASK(cuModuleLoad(&m, "/nonexistent.cubin"));
  ASK(cuModuleLoadData(NULL, ptx));
  ASK(cuModuleLoadData(&m, ptx));
  ASK(cuModuleGetFunction(&k, m, "missing"));
  ASK(cuModuleGetFunction(&k, m, "k"));
  ASK(cuModuleGetGlobal(&base, &sz, m, "missing"));
  ASK(cuModuleGetGlobal(&base, &sz, m, "gv"));
  ASK(cuModuleGetGlobal(NULL, &sz, m, "gv"));
  ASK(cuModuleGetGlobal(&base, NULL, m, "gv"));
  ASK(cuLaunchKernel(k, 1, 1, 1, 32, 1, 1, 0, 0, args, 0));
  ASK(cuLaunchKernel(k, 0, 1, 1, 32, 1, 1, 0, 0, args, 0));
  ASK(cuLaunchKernel(k, 1, 1, 1, 0, 1, 1, 0, 0, args, 0));
  ASK(cuLaunchKernel(k, 1, 1, 1, 2048, 1, 1, 0, 0, args, 0));
  ASK(cuLaunchKernel(k, 1, 1, 1, 1025, 1, 1, 0, 0, args, 0));
  ASK(cuLaunchKernel(k, 1, 70000, 1, 1, 1, 1, 0, 0, args, 0));
  ASK(cuLaunchKernel(k, 1, 1, 1, 1, 1, 65, 0, 0, args, 0));
  ASK(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 1 << 20, 0, args, 0));
  ASK(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 60000, 0, args, 0));
  ASK(cuFuncSetAttribute(k, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
  ASK(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 60000, 0, args, 0));
  ASK(cuFuncSetAttribute(k, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20));
  ASK(cuFuncSetAttribute(k, CU_FUNC_ATTRIBUTE_NUM_REGS, 1));
  ASK(cuFuncGetAttribute(&n, (CUfunction_attribute)99, k));
  ASK(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0));
  ASK(cuLaunchKernel(0, 1, 1, 1, 1, 1, 1, 0, 0, args, 0));
  buffer_params(4);
  ASK(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, 0, 0, ex));
  buffer_params(8);
  ASK(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, 0, 0, ex));
  buffer_params(16);
  ASK(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, 0, 0, ex));
  ASK(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, 0, args, ex));
  ASK(cuCtxSynchronize());
  ASK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&n, k, 0, 0));
  ASK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&n, k, 4096, 0));
  ASK(cuModuleUnload(m));
  ASK(cuModuleLoadData(&m, ptx));
  ASK(cuLibraryLoadData(&L, ptx, 0, 0, 0, 0, 0, 0));
  ASK(cuLibraryGetKernel(&K, L, "nope"));
  ASK(cuLibraryGetKernel(&K, L, "k"));
  ASK(cuLibraryGetKernelCount(&u, L));
  ASK(cuLibraryGetGlobal(&base, &sz, L, "gv"));
  ASK(cuLaunchKernel((CUfunction)K, 1, 1, 1, 1, 1, 1, 0, 0, args, 0));
  ASK(cuLibraryUnload(L));
  ASK(cuLinkCreate(0, 0, 0, &ls));
  ASK(cuLinkAddData(ls, CU_JIT_INPUT_PTX, (void *)"junk", 5, "x", 0, 0, 0));
  ASK(cuLinkAddData(ls, CU_JIT_INPUT_PTX, (void *)ptx, sizeof ptx, "x", 0, 0, 0));
  ASK(cuLinkComplete(ls, &cb, &sz));
  ASK(cuModuleLoadData(&lm, cb));
  ASK(cuLinkDestroy(ls));
}

static void ipc_and_vmm(void) {
  ASK(cuIpcGetMemHandle(&ih, p));
  ASK(cuIpcOpenMemHandle(&base, ih, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  ASK(cuMemAddressReserve(&base, (size_t)32 << 30, 0, 0, 0));
  ASK(cuMemAddressReserve(&base, 12345, 0, 0, 0));
  ASK(cuMemCreate(&mh, 12345, &ap, 0));
  ASK(cuMemCreate(&mh, 2 << 20, &ap, 0));
  ASK(cuMemMap(0x1000, 2 << 20, 0, mh, 0));
  ASK(cuMemRelease(mh));
}

static void in_another_thread(void) {
  ASK(cuCtxGetCurrent(&x));
  ASK(cuMemAlloc(&base, 16));
  ASK(cuCtxPushCurrent(c));
  ASK(cuMemAlloc(&base, 16));
  ASK(cuCtxPopCurrent(&x));
  ASK(cuCtxPopCurrent(NULL));
}

static void in_a_forked_child(void) {
  ASK(cuInit(0));
  ASK(cuDeviceGetCount(&n));
  ASK(cuMemGetInfo(&f, &t));
  ASK(cuCtxGetCurrent(&c));
  ASK(cuMemAlloc(&p, 16));
  ASK(cuDriverGetVersion(&n));
}

static void contexts(void) {
  ASK(cuCtxCreate(&c2, NULL, 0, 9));
  ASK(cuCtxCreate(&c2, NULL, 0xffff, 0));
  ASK(cuCtxCreate(&c2, NULL, 0, 0));
  ASK(cuCtxGetCurrent(&c));
  ASK(cuMemFree(p));
  ASK(cuCtxDestroy(c2));
  ASK(cuCtxGetCurrent(&c));
  ASK(cuDevicePrimaryCtxRetain(&c, 0));
  ASK(cuCtxSetCurrent(c));
  ASK(cuModuleLoadData(&m, ptx));
}

static void after_an_illegal_address(void) {
  ASK(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, 0, args, 0));
  ASK(cuCtxSynchronize());
  ASK(cuCtxSynchronize());
  ASK(cuMemAlloc(&p, 16));
  ASK(cuStreamQuery(0));
  ASK(cuModuleLoadData(&m, ptx));
  ASK(cuMemGetInfo(&f, &t));
  ASK(cuDeviceGetCount(&n));
  ASK(cuCtxGetCurrent(&x));
  ASK(cuCtxCreate(&x, NULL, 0, 0));
  ASK(cuDevicePrimaryCtxReset(0));
  ASK(cuDevicePrimaryCtxRetain(&c, 0));
  ASK(cuCtxSetCurrent(c));
  ASK(cuMemAlloc(&p, 16));
}

static void after_a_trap(void) {
  ASK(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0));
  ASK(cuCtxSynchronize());
  ASK(cuCtxSynchronize());
  ASK(cuMemAlloc(&p, 16));
  ASK(cuStreamQuery(0));
  ASK(cuModuleLoadData(&m, ptx));
  ASK(cuMemGetInfo(&f, &t));
  ASK(cuDeviceGetCount(&n));
  ASK(cuCtxGetCurrent(&x));
  ASK(cuCtxCreate(&x, NULL, 0, 0));
  ASK(cuDevicePrimaryCtxReset(0));
  ASK(cuDevicePrimaryCtxRetain(&c, 0));
  ASK(cuCtxSetCurrent(c));
  ASK(cuMemAlloc(&p, 16));
}

static void *thread(void *unused) {
  in_another_thread();
  return unused;
}

int main(int argc, char **argv) {
  host = malloc(1 << 20);
  reg = aligned_alloc(4096, 1 << 20);
  if (argc > 1) {
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&c, 0) || cuCtxSetCurrent(c) || cuModuleLoadData(&m, ptx) ||
        cuModuleGetFunction(&k, m, argv[1]))
      return 1;
    if (strcmp(argv[1], "bad"))
      after_a_trap();
    else
      after_an_illegal_address();
    return 0;
  }
  before_init();
  devices();
  without_context();
  memory();
  streams_and_events();
  modules_and_launches();
  ipc_and_vmm();
  pthread_t other;
  pthread_create(&other, NULL, thread, NULL);
  pthread_join(other, NULL);
  if (!fork()) {
    in_a_forked_child();
    _exit(0);
  }
  wait(NULL);
  contexts();
  return 0;
}
