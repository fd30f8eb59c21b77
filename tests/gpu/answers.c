/* What a driver answers to calls that few programs make, one line each: calls of CUDA 3.1, memory and semaphores of
 * other interfaces, sparse arrays, dma-bufs. Each group runs in a process of its own, as NVIDIA's driver crashes on
 * some wrong handles. `cc -w answers.c -ldl && ./a.out [GROUP]`, natively or under `vgpu run`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void *cuda;
typedef int (*any)();
static any f(const char *name) {
  any found = (any)dlsym(cuda, name);
  if (!found) {
    printf("%s: no such function\n", name);
    fflush(stdout);
    _exit(9);
  }
  return found;
}
#define CALL(name, ...)                                                                                                \
  ({                                                                                                                   \
    printf("%s(%s)", #name, #__VA_ARGS__);                                                                             \
    fflush(stdout);                                                                                                    \
    int code_ = f(#name)(__VA_ARGS__);                                                                                 \
    printf(" => %d\n", code_);                                                                                         \
    fflush(stdout);                                                                                                    \
    code_;                                                                                                             \
  })
#define Q(name, ...)                                                                                                   \
  ({                                                                                                                   \
    int code_ = f(#name)(__VA_ARGS__);                                                                                 \
    if (code_)                                                                                                         \
      printf("  [%s => %d]\n", #name, code_);                                                                          \
    fflush(stdout);                                                                                                    \
    code_;                                                                                                             \
  })
#define SHOW(format, ...) (printf("    " format "\n", __VA_ARGS__), fflush(stdout))
typedef uint64_t u64;
typedef uint32_t u32;
static void *ctx;
static u64 dev;
static size_t granularity;
static char host[8192];

/* Calls of CUDA 3.1, whose addresses and numbers have 32 bits. */
static void old_in(void) {
  u32 p = 7, n = 7, shape[] = {64, 0, 1, 1}, shape3[] = {64, 0, 0, 1, 1};
  void *module = NULL, *array = NULL, *made = NULL;
  struct {
    size_t w, h;
    int format;
    u32 channels;
  } flat = {64, 0, 1, 1};
  static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 4 .u32 g[4];\n"
                            ".visible .entry k() { ret; }\n";
  Q(cuModuleLoadData, &module, ptx);
  Q(cuArrayCreate_v2, &array, &flat);
  CALL(cuMemAlloc, &p, 4096);
  SHOW("p %x", p);
  CALL(cuMemGetInfo, &p, &n);
  CALL(cuMemFree, 0);
  CALL(cuMemsetD8, 0x1000, 9, 16);
  CALL(cuMemcpyHtoD, (u32)dev, host, 16);
  CALL(cuModuleGetGlobal, &p, &n, module, "g");
  CALL(cuArrayCreate, &made, shape);
  CALL(cuArray3DCreate, &made, shape3);
  CALL(cuArrayGetDescriptor, shape, array);
  CALL(cuArray3DGetDescriptor, shape3, array);
  CALL(cuMemcpyHtoA, array, 0, host, 16);
  CALL(cuMemcpyAtoH, host, array, 0, 16);
  CALL(cuMemcpyAtoA, array, 0, array, 16, 16);
  CALL(cuMemcpyHtoAAsync, array, 0, host, 16, (void *)0);
  CALL(cuMemcpyAtoHAsync, host, array, 0, 16, (void *)0);
}
static void old_primary(void) { old_in(); }
static void old_context(void) {
  void *made = NULL;
  if (!CALL(cuCtxCreate, &made, 0, 0))
    old_in();
}

static void small(void) {
  char luid[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  u32 mask = 7;
  CALL(cuDeviceGetLuid, luid, &mask, 0);
  SHOW("%d %u", luid[0], mask);
  CALL(cuDeviceGetLuid, (void *)0, &mask, 0);
  CALL(cuDeviceGetLuid, luid, (void *)0, 0);
  CALL(cuDeviceGetLuid, luid, &mask, 99);
  CALL(cuProfilerInitialize, "c", "o", 0);
  CALL(cuProfilerInitialize, "c", "o", 1);
  CALL(cuProfilerInitialize, "c", "o", 5);
  CALL(cuProfilerInitialize, (void *)0, "o", 0);
  CALL(cuProfilerInitialize, "c", (void *)0, 0);
  CALL(cuProfilerInitialize, (void *)0, (void *)0, 0);
}
static void pointer(void) {
  int one = 1, zero = 0, value = 7;
  CALL(cuPointerGetAttribute, &value, 6, dev);
  SHOW("%d", value);
  CALL(cuPointerSetAttribute, &one, 6, dev);
  CALL(cuPointerGetAttribute, &value, 6, dev);
  SHOW("%d", value);
  CALL(cuPointerGetAttribute, &value, 6, dev + 4096);
  SHOW("%d", value);
  CALL(cuPointerSetAttribute, &zero, 6, dev + 8);
  CALL(cuPointerGetAttribute, &value, 6, dev);
  SHOW("%d", value);
  CALL(cuPointerSetAttribute, (void *)0, 6, dev);
  CALL(cuPointerSetAttribute, &one, 6, (u64)0);
  CALL(cuPointerSetAttribute, &one, 6, (u64)0x1000);
  CALL(cuPointerSetAttribute, &one, 6, (u64)(uintptr_t)host);
  for (int i = 0; i < 24; i++) {
    if (i == 6)
      continue;
    printf("attribute %d: ", i);
    CALL(cuPointerSetAttribute, &one, i, dev);
  }
  char *pinned = NULL;
  Q(cuMemHostAlloc, &pinned, (size_t)4096, 2);
  printf("pinned: ");
  CALL(cuPointerSetAttribute, &one, 6, (u64)(uintptr_t)pinned);
  CALL(cuPointerGetAttribute, &value, 6, (u64)(uintptr_t)pinned);
  SHOW("%d", value);
  u64 managed = 0;
  Q(cuMemAllocManaged, &managed, (size_t)4096, 1);
  printf("managed: ");
  CALL(cuPointerSetAttribute, &one, 6, managed);
  CALL(cuPointerGetAttribute, &value, 6, managed);
  SHOW("%d", value);
  u64 pool = 0;
  if (!Q(cuMemAllocAsync, &pool, (size_t)4096, (void *)0)) {
    printf("pool: ");
    CALL(cuPointerSetAttribute, &one, 6, pool);
    CALL(cuPointerGetAttribute, &value, 6, pool);
    SHOW("%d", value);
  }
}
static u64 big;
static void dmabuf(void) {
  int fd = -7;
  Q(cuMemAlloc_v2, &big, (size_t)4 << 20);
  CALL(cuMemGetHandleForAddressRange, &fd, big, (size_t)4 << 20, 1, (u64)0);
  SHOW("%d", fd > 0 ? 1 : fd);
  CALL(cuMemGetHandleForAddressRange, &fd, big, (size_t)65536, 1, (u64)0);
  CALL(cuMemGetHandleForAddressRange, &fd, big, (size_t)4096, 1, (u64)0);
  CALL(cuMemGetHandleForAddressRange, &fd, big + 16, (size_t)4096, 1, (u64)0);
  CALL(cuMemGetHandleForAddressRange, &fd, big, (size_t)100, 1, (u64)0);
  CALL(cuMemGetHandleForAddressRange, &fd, big, (size_t)8 << 20, 1, (u64)0);
  CALL(cuMemGetHandleForAddressRange, &fd, big, (size_t)0, 1, (u64)0);
  CALL(cuMemGetHandleForAddressRange, &fd, (u64)0x1000, (size_t)4096, 1, (u64)0);
  CALL(cuMemGetHandleForAddressRange, &fd, big, (size_t)65536, 1, (u64)1);
  CALL(cuMemGetHandleForAddressRange, &fd, big, (size_t)65536, 1, (u64)2);
  CALL(cuMemGetHandleForAddressRange, &fd, big, (size_t)65536, 0, (u64)0);
  CALL(cuMemGetHandleForAddressRange, &fd, big, (size_t)65536, 2, (u64)0);
  CALL(cuMemGetHandleForAddressRange, (void *)0, big, (size_t)65536, 1, (u64)0);
}

static int exported(u64 *handle) {
  u32 prop[8] = {1, 1, 1, 0, 0, 0, 0}; /* pinned, posix fd, device 0 */
  int fd = -1;
  Q(cuMemGetAllocationGranularity, &granularity, prop, 0);
  if (Q(cuMemCreate, handle, granularity, prop, (u64)0))
    return -1;
  Q(cuMemExportToShareableHandle, &fd, *handle, 1, (u64)0);
  return fd;
}
struct extmem {
  int type;
  union {
    int fd;
    struct {
      void *handle;
      const void *name;
    } win;
  };
  u64 size;
  u32 flags, reserved[16];
};
struct extbuf {
  u64 offset, size;
  u32 flags, reserved[16];
};
static void external_memory(void) {
  u64 handle = 0, buffer = 0;
  void *memory = NULL;
  int memfd = memfd_create("x", 0), event = eventfd(0, 0), fd = exported(&handle);
  if (ftruncate(memfd, 1 << 21))
    return;
  SHOW("exported %d", fd >= 0);
  struct extmem d = {.type = 1, .fd = dup(memfd), .size = 1 << 21};
  printf("memfd: ");
  CALL(cuImportExternalMemory, &memory, &d);
  d.fd = dup(event);
  printf("eventfd: ");
  CALL(cuImportExternalMemory, &memory, &d);
  d.fd = -1;
  printf("-1: ");
  CALL(cuImportExternalMemory, &memory, &d);
  d.fd = open("/dev/null", 2);
  printf("/dev/null: ");
  CALL(cuImportExternalMemory, &memory, &d);
  for (int type = 0; type < 10; type++) {
    if (type == 1)
      continue;
    d.type = type, d.win.handle = NULL, d.win.name = NULL, d.fd = type == 0 ? dup(memfd) : 0;
    printf("type %d: ", type);
    if (type != 8)
      CALL(cuImportExternalMemory, &memory, &d);
  }
  d = (struct extmem){.type = 1, .fd = dup(fd), .size = 0};
  printf("size 0: ");
  CALL(cuImportExternalMemory, &memory, &d);
  CALL(cuImportExternalMemory, &memory, (void *)0);
  d = (struct extmem){.type = 1, .fd = dup(fd), .size = granularity, .flags = 4};
  printf("flags 4: ");
  CALL(cuImportExternalMemory, &memory, &d);
  d = (struct extmem){.type = 1, .fd = dup(fd), .size = granularity * 2};
  printf("too large: ");
  CALL(cuImportExternalMemory, &memory, &d);
  d = (struct extmem){.type = 1, .fd = dup(fd), .size = granularity};
  CALL(cuImportExternalMemory, (void *)0, &d);
  memory = NULL;
  printf("exported by cuMemCreate: ");
  if (CALL(cuImportExternalMemory, &memory, &d)) {
    d.flags = 1, d.fd = dup(fd);
    printf("dedicated: ");
    CALL(cuImportExternalMemory, &memory, &d);
  }
  if (memory) {
    struct extbuf b = {0, granularity};
    CALL(cuExternalMemoryGetMappedBuffer, (void *)0, memory, &b);
    CALL(cuExternalMemoryGetMappedBuffer, &buffer, memory, (void *)0);
    if (!CALL(cuExternalMemoryGetMappedBuffer, &buffer, memory, &b)) {
      u64 va = 0;
      u32 access[3] = {1, 0, 3};
      Q(cuMemAddressReserve, &va, granularity, (size_t)0, (u64)0, (u64)0);
      Q(cuMemMap, va, granularity, (size_t)0, handle, (u64)0);
      Q(cuMemSetAccess, va, granularity, access, (size_t)1);
      u32 word = 0;
      Q(cuMemsetD32_v2, va, 77, (size_t)16);
      CALL(cuMemcpyDtoH_v2, &word, buffer, (size_t)4);
      SHOW("word %u", word);
      u64 base = 0;
      size_t size = 0;
      CALL(cuMemGetAddressRange_v2, &base, &size, buffer);
      SHOW("same %d size %zu", base == buffer, size);
      int type = 0;
      u64 allowed = 0;
      CALL(cuPointerGetAttribute, &type, 2, buffer);
      SHOW("memory type %d", type);
      CALL(cuPointerGetAttribute, &allowed, 14, buffer);
      SHOW("allowed handle types %llu", (unsigned long long)allowed);
    }
    u64 second = 0;
    b = (struct extbuf){4096, 4096};
    CALL(cuExternalMemoryGetMappedBuffer, &second, memory, &b);
    SHOW("offset %lld", (long long)(second - buffer));
    b = (struct extbuf){16, 4096};
    CALL(cuExternalMemoryGetMappedBuffer, &second, memory, &b);
    SHOW("offset %lld", (long long)(second - buffer));
    b = (struct extbuf){0, granularity + 1};
    CALL(cuExternalMemoryGetMappedBuffer, &second, memory, &b);
    b = (struct extbuf){granularity, 1};
    CALL(cuExternalMemoryGetMappedBuffer, &second, memory, &b);
    b = (struct extbuf){0, 0};
    CALL(cuExternalMemoryGetMappedBuffer, &second, memory, &b);
    b = (struct extbuf){0, 4096, 1};
    CALL(cuExternalMemoryGetMappedBuffer, &second, memory, &b);
    CALL(cuMemFree_v2, buffer);
    CALL(cuDestroyExternalMemory, memory);
    if (buffer)
      CALL(cuMemFree_v2, buffer);
  }
}
static void external_memory_wild(void) {
  struct extbuf b = {0, 4096};
  u64 buffer = 0;
  CALL(cuExternalMemoryGetMappedBuffer, &buffer, (void *)0, &b);
  CALL(cuExternalMemoryGetMappedMipmappedArray, &buffer, (void *)0, host);
  CALL(cuDestroyExternalMemory, (void *)0x1234);
}
struct extsem {
  int type;
  union {
    int fd;
    struct {
      void *handle;
      const void *name;
    } win;
  };
  u32 flags, reserved[16];
};
static void external_semaphore(void) {
  void *semaphore = NULL;
  int memfd = memfd_create("x", 0), event = eventfd(0, 0);
  for (int type = 0; type < 12; type++) {
    if (type == 6)
      continue;
    struct extsem d = {.type = type};
    d.fd = type == 2 || (type >= 3 && type <= 5) || type == 7 || type == 8 || type == 10 ? 0 : dup(memfd);
    printf("type %d memfd: ", type);
    CALL(cuImportExternalSemaphore, &semaphore, &d);
  }
  for (int type = 1; type < 10; type += 8) {
    struct extsem d = {.type = type, .fd = dup(event)};
    printf("type %d eventfd: ", type);
    CALL(cuImportExternalSemaphore, &semaphore, &d);
    d.fd = -1;
    printf("type %d -1: ", type);
    CALL(cuImportExternalSemaphore, &semaphore, &d);
    d.fd = dup(event), d.flags = 8;
    printf("type %d flags 8: ", type);
    CALL(cuImportExternalSemaphore, &semaphore, &d);
  }
  struct extsem d = {.type = 1, .fd = dup(event)};
  CALL(cuImportExternalSemaphore, (void *)0, &d);
  CALL(cuImportExternalSemaphore, &semaphore, (void *)0);
  CALL(cuSignalExternalSemaphoresAsync, (void *)0, (void *)0, 0, (void *)0);
  CALL(cuWaitExternalSemaphoresAsync, (void *)0, (void *)0, 0, (void *)0);
  CALL(cuSignalExternalSemaphoresAsync, (void *)0, (void *)0, 1, (void *)0);
  CALL(cuWaitExternalSemaphoresAsync, (void *)0, (void *)0, 1, (void *)0);
  CALL(cuDestroyExternalSemaphore, (void *)0);
}
static void external_semaphore_null(void) {
  void *none[1] = {NULL};
  CALL(cuSignalExternalSemaphoresAsync, none, host, 1, (void *)0);
  CALL(cuWaitExternalSemaphoresAsync, none, host, 1, (void *)0);
}
static void external_semaphore_wild(void) { CALL(cuDestroyExternalSemaphore, (void *)0x1234); }
static void graph_semaphores(void) {
  void *graph = NULL, *node = NULL, *empty = NULL, *exec = NULL, *none[1] = {NULL};
  struct {
    void **array;
    void *params;
    u32 n;
  } p = {NULL, NULL}, q;
  Q(cuGraphCreate, &graph, 0);
  Q(cuGraphAddEmptyNode, &empty, graph, (void *)0, (size_t)0);
  CALL(cuGraphAddExternalSemaphoresSignalNode, &node, graph, (void *)0, (size_t)0, (void *)0);
  CALL(cuGraphAddExternalSemaphoresWaitNode, &node, graph, (void *)0, (size_t)0, (void *)0);
  CALL(cuGraphExternalSemaphoresSignalNodeGetParams, empty, &q);
  CALL(cuGraphExternalSemaphoresWaitNodeGetParams, empty, &q);
  CALL(cuGraphExternalSemaphoresSignalNodeSetParams, empty, &p);
  CALL(cuGraphExternalSemaphoresWaitNodeSetParams, empty, &p);
  Q(cuGraphInstantiateWithFlags, &exec, graph, (u64)0);
  CALL(cuGraphExecExternalSemaphoresSignalNodeSetParams, exec, empty, &p);
  CALL(cuGraphExecExternalSemaphoresWaitNodeSetParams, exec, empty, &p);
  CALL(cuGraphAddExternalSemaphoresSignalNode, &node, graph, (void *)0, (size_t)0, &p);
  CALL(cuGraphAddExternalSemaphoresWaitNode, &node, graph, (void *)0, (size_t)0, &p);
  p.n = 1;
  CALL(cuGraphAddExternalSemaphoresSignalNode, &node, graph, (void *)0, (size_t)0, &p);
  CALL(cuGraphAddExternalSemaphoresWaitNode, &node, graph, (void *)0, (size_t)0, &p);
  p.array = none, p.params = host;
  CALL(cuGraphAddExternalSemaphoresSignalNode, &node, graph, (void *)0, (size_t)0, &p);
  CALL(cuGraphAddExternalSemaphoresWaitNode, &node, graph, (void *)0, (size_t)0, &p);
}
struct a3 {
  size_t w, h, d;
  int format;
  u32 channels, flags;
};
static void sparse(void) {
  void *array = NULL, *mipmap = NULL, *plain = NULL;
  struct {
    u32 w, h, d, first;
    u64 size;
    u32 flags, reserved[4];
  } s;
  struct {
    size_t size, alignment;
    u32 reserved[4];
  } r;
  struct a3 flat = {1024, 1024, 0, 32, 1};
  Q(cuArray3DCreate_v2, &plain, &flat);
  memset(&s, 0, sizeof s), memset(&r, 0, sizeof r);
  CALL(cuArrayGetSparseProperties, &s, plain);
  CALL(cuArrayGetMemoryRequirements, &r, plain, 0);
  SHOW("size %zu alignment %zu", r.size, r.alignment);
  CALL(cuArrayGetSparseProperties, (void *)0, plain);
  CALL(cuArrayGetMemoryRequirements, (void *)0, plain, 0);
  CALL(cuArrayGetMemoryRequirements, &r, plain, 99);
  flat.flags = 0x40;
  if (!CALL(cuArray3DCreate_v2, &array, &flat)) {
    CALL(cuArrayGetSparseProperties, &s, array);
    SHOW("%u x %u x %u, tail %u %llu, flags %u", s.w, s.h, s.d, s.first, (unsigned long long)s.size, s.flags);
    CALL(cuArrayGetMemoryRequirements, &r, array, 0);
    SHOW("size %zu alignment %zu", r.size, r.alignment);
    u64 handle = 0;
    u32 prop[8] = {1, 0, 1, 0, 0, 0, 0};
    size_t g = 0;
    Q(cuMemGetAllocationGranularity, &g, prop, 0);
    SHOW("granularity %zu", g);
    ((uint8_t *)prop)[24 + 2] = 1; /* allocFlags.usage = TILE_POOL */
    if (!CALL(cuMemCreate, &handle, g, prop, (u64)0)) {
      struct {
        int type;
        int pad;
        void *resource;
        int sub;
        int pad2;
        u32 level[8];
        int op, handle_type;
        u64 handle, offset;
        u32 mask, flags, reserved[2];
      } m;
      _Static_assert(sizeof m == 96, "map info");
      memset(&m, 0, sizeof m);
      m.type = 0, m.resource = array, m.op = 1, m.handle = handle, m.mask = 1;
      m.level[5] = s.w, m.level[6] = s.h, m.level[7] = 1;
      CALL(cuMemMapArrayAsync, &m, 1, (void *)0);
      CALL(cuCtxSynchronize);
      m.op = 2, m.handle = 0;
      CALL(cuMemMapArrayAsync, &m, 1, (void *)0);
      CALL(cuCtxSynchronize);
      m.mask = 0;
      CALL(cuMemMapArrayAsync, &m, 1, (void *)0);
    }
  }
  CALL(cuMemMapArrayAsync, (void *)0, 0, (void *)0);
  CALL(cuMemMapArrayAsync, (void *)0, 1, (void *)0);
  CALL(cuMipmappedArrayCreate, &mipmap, &flat, 4);
  if (mipmap) {
    CALL(cuMipmappedArrayGetSparseProperties, &s, mipmap);
    SHOW("%u x %u x %u, tail %u %llu, flags %u", s.w, s.h, s.d, s.first, (unsigned long long)s.size, s.flags);
    CALL(cuMipmappedArrayGetMemoryRequirements, &r, mipmap, 0);
    SHOW("size %zu alignment %zu", r.size, r.alignment);
  }
  mipmap = NULL, flat.flags = 0;
  Q(cuMipmappedArrayCreate, &mipmap, &flat, 4);
  CALL(cuMipmappedArrayGetSparseProperties, &s, mipmap);
  CALL(cuMipmappedArrayGetMemoryRequirements, &r, mipmap, 0);
  flat.flags = 0x80;
  if (!CALL(cuArray3DCreate_v2, &array, &flat)) {
    CALL(cuArrayGetMemoryRequirements, &r, array, 0);
    SHOW("size %zu alignment %zu", r.size, r.alignment);
    CALL(cuArrayGetSparseProperties, &s, array);
  }
}
static void planes(void) {
  void *array = NULL, *plane = NULL;
  struct a3 flat = {64, 64, 0, 8, 1};
  Q(cuArray3DCreate_v2, &array, &flat);
  CALL(cuArrayGetPlane, &plane, array, 0);
  CALL(cuArrayGetPlane, &plane, array, 1);
  CALL(cuArrayGetPlane, (void *)0, array, 0);
  flat.format = 0xb0, flat.channels = 3;
  if (!CALL(cuArray3DCreate_v2, &array, &flat)) {
    for (u32 i = 0; i < 3; i++) {
      struct a3 told = {0};
      if (!CALL(cuArrayGetPlane, &plane, array, i)) {
        CALL(cuArray3DGetDescriptor_v2, &told, plane);
        SHOW("%zu x %zu x %zu format %d channels %u flags %u", told.w, told.h, told.d, told.format, told.channels,
             told.flags);
      }
    }
    CALL(cuArrayDestroy, plane);
  }
}
static void launches(void) {
  void *module = NULL, *kernel = NULL, *stream = NULL, *library = NULL, *pointer_ = (void *)7;
  static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                            ".visible .func (.param .b32 r) d(.param .b32 a) { .reg .b32 x; ld.param.b32 x, [a]; "
                            "st.param.b32 [r], x; ret; }\n"
                            ".visible .entry k(.param .u64 p) { .reg .u64 a; ld.param.u64 a, [p]; cvta.to.global.u64 "
                            "a, a; st.global.u32 [a], 42; ret; }\n";
  Q(cuModuleLoadData, &module, ptx);
  Q(cuModuleGetFunction, &kernel, module, "k");
  Q(cuStreamCreate, &stream, 1);
  void *params[] = {&dev};
  struct launch {
    void *function;
    u32 g[3], b[3], shared;
    void *stream;
    void **params;
  } l = {kernel, {1, 1, 1}, {1, 1, 1}, 0, stream, params};
  _Static_assert(sizeof l == 56, "launch");
  u32 word = 0;
  CALL(cuLaunchCooperativeKernelMultiDevice, &l, 1, 0);
  Q(cuCtxSynchronize);
  Q(cuMemcpyDtoH_v2, &word, dev, (size_t)4);
  SHOW("word %u", word);
  CALL(cuLaunchCooperativeKernelMultiDevice, &l, 1, 1);
  CALL(cuLaunchCooperativeKernelMultiDevice, &l, 1, 4);
  CALL(cuLaunchCooperativeKernelMultiDevice, &l, 0, 0);
  CALL(cuLaunchCooperativeKernelMultiDevice, &l, 2, 0);
  CALL(cuLaunchCooperativeKernelMultiDevice, (void *)0, 1, 0);
  l.stream = NULL;
  printf("default stream: ");
  CALL(cuLaunchCooperativeKernelMultiDevice, &l, 1, 0);
  l.stream = stream, l.g[0] = 1 << 20;
  printf("too large: ");
  CALL(cuLaunchCooperativeKernelMultiDevice, &l, 1, 0);
  Q(cuLibraryLoadData, &library, ptx, (void *)0, (void *)0, 0, (void *)0, (void *)0, 0);
  CALL(cuLibraryGetUnifiedFunction, &pointer_, library, "d");
  SHOW("%p", pointer_);
  CALL(cuLibraryGetUnifiedFunction, &pointer_, library, "k");
  CALL(cuLibraryGetUnifiedFunction, &pointer_, library, "absent");
  CALL(cuLibraryGetUnifiedFunction, (void *)0, library, "d");
  CALL(cuLibraryGetUnifiedFunction, &pointer_, library, (void *)0);
}
static void wide_map(void) {
  _Alignas(64) char map[128];
  u64 dims[5] = {64, 32, 32, 8, 1}, strides[4] = {128, 4096, 131072, 1048576};
  u32 ones[5] = {1, 1, 1, 1, 1};
  printf("rank 4, fp16: ");
  CALL(cuTensorMapEncodeIm2colWide, map, 6, 4, dev, dims, strides, -1, 1, 64, 32, ones, 0, 0, 3, 0, 0);
  printf("mode 1: ");
  CALL(cuTensorMapEncodeIm2colWide, map, 6, 4, dev, dims, strides, -1, 1, 64, 32, ones, 0, 1, 3, 0, 0);
  printf("rank 2: ");
  CALL(cuTensorMapEncodeIm2colWide, map, 6, 2, dev, dims, strides, -1, 1, 64, 32, ones, 0, 0, 3, 0, 0);
  CALL(cuTensorMapEncodeIm2colWide, (void *)0, 6, 4, dev, dims, strides, -1, 1, 64, 32, ones, 0, 0, 3, 0, 0);
}
static void decompress(void) {
  struct {
    size_t n, m;
    u32 *actual;
    u64 src, dst;
    int algorithm;
    char padding[20];
  } p = {64, 64, (u32 *)(uintptr_t)(dev + 8192), dev, dev + 4096, 1, {0}};
  size_t index = 7;
  int value = 7;
  CALL(cuPointerGetAttribute, &value, 20, dev);
  SHOW("hw decompress capable %d", value);
  CALL(cuPointerGetAttribute, &value, 21, dev);
  SHOW("attribute 21 %d", value);
  CALL(cuMemBatchDecompressAsync, &p, (size_t)1, 0, &index, (void *)0);
  SHOW("index %zu", index);
  p.algorithm = 0;
  CALL(cuMemBatchDecompressAsync, &p, (size_t)1, 0, &index, (void *)0);
  SHOW("index %zu", index);
  CALL(cuMemBatchDecompressAsync, &p, (size_t)0, 0, &index, (void *)0);
  SHOW("index %zu", index);
  CALL(cuMemBatchDecompressAsync, (void *)0, (size_t)1, 0, &index, (void *)0);
  SHOW("index %zu", index);
  CALL(cuMemBatchDecompressAsync, &p, (size_t)1, 1, &index, (void *)0);
  SHOW("index %zu", index);
  CALL(cuMemBatchDecompressAsync, &p, (size_t)1, 0, (void *)0, (void *)0);
}
static const struct {
  const char *name;
  void (*run)(void);
} groups[] = {{"old", old_primary},
              {"old, in an old context", old_context},
              {"small", small},
              {"pointer", pointer},
              {"dma-buf", dmabuf},
              {"external memory", external_memory},
              {"external memory, wild", external_memory_wild},
              {"external semaphore", external_semaphore},
              {"external semaphore, null", external_semaphore_null},
              {"external semaphore, wild", external_semaphore_wild},
              {"semaphores in graphs", graph_semaphores},
              {"sparse", sparse},
              {"planes", planes},
              {"launches", launches},
              {"wide map", wide_map},
              {"decompress", decompress}};

int main(int count, char **arguments) {
  for (unsigned i = 0; i < sizeof groups / sizeof *groups; i++) {
    if (count > 1 && !strstr(groups[i].name, arguments[1]))
      continue;
    printf("# %s\n", groups[i].name);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
      alarm(20);
      if (!(cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL))) {
        printf("no libcuda: %s\n", dlerror());
        _exit(3);
      }
      if (Q(cuInit, 0) || Q(cuDevicePrimaryCtxRetain, &ctx, 0) || Q(cuCtxSetCurrent, ctx) ||
          Q(cuMemAlloc_v2, &dev, (size_t)65536))
        _exit(4);
      groups[i].run();
      fflush(stdout);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status)
      printf("# ended with %s %d\n", WIFSIGNALED(status) ? "signal" : "code",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  }
  return 0;
}
