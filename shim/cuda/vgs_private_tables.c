/* The private tables that NVIDIA's own runtime and libraries ask for with cuGetExportTable. Without them no NVIDIA
 * runtime, static or dynamic, initialises on any driver but NVIDIA's, so they are an interoperability requirement.
 * Their layout, and the key of the integrity check, are public knowledge (ZLUDA's and others' published sources),
 * confirmed by the runtimes' acceptance; nothing was disassembled. A slot that no known runtime calls returns
 * NOT_SUPPORTED; an unknown table is refused. */
#include "vgs_api.h"
#include "vgs_cls.h"
#include "vgs_context.h"
#include "vgs_device.h"
#include "vgs_enter.h"
#include "vgs_log.h"
#include "vgs_md2.h"
#include "vgs_session.h"
#include "vgs_stream.h"
#include "vgw_enums.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef CUresult (*slot)(void);
#define SLOT(function) ((slot)(void *)(function))
#define SIZE_SLOT(count) ((slot)(uintptr_t)((count) * sizeof(slot)))

static CUresult not_supported(void) {
  static bool named;
  return vgs_unimplemented("a slot of a private table", &named);
}

static CUresult zero(void) { return CUDA_SUCCESS; }

/* --- CUDART_INTERFACE --- */

static CUresult primary_context(CUcontext *context, CUdevice device) {
  if (vgs_enter_init())
    return vgs_enter_init();
  if (!context)
    return CUDA_ERROR_INVALID_VALUE;
  if (!vgs_device(device))
    return CUDA_ERROR_INVALID_DEVICE;
  struct vgs_context *primary = vgs_context_primary(device);
  if (!primary)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *context = vgs_object_handle(primary);
  return CUDA_SUCCESS;
}

static CUresult load_module(CUmodule *module, const void *image) {
  CUresult result = vgs_enter_context();
  return result ? result : vgs_cuModuleLoadData(module, image);
}

static CUresult load_module_of_container(const void *image, CUmodule *module) { return load_module(module, image); }

/* cudart 11 calls this at exit for what it loaded with slot 6; the context's end unloads its modules. */
static CUresult release_module(const void *image) {
  (void)image;
  return CUDA_SUCCESS;
}

static slot cudart_interface[13];

/* --- TOOLS_RT_CB_HOOKS: flags that tools set; no tool sets them here, so they stay zero --- */

enum { RUNTIME_CALLBACKS = 4096, RESOURCE_CALLBACKS = 64 };

static void runtime_callback_flags(void **flags, size_t *count) {
  static uint32_t all[RUNTIME_CALLBACKS];
  *flags = all;
  *count = RUNTIME_CALLBACKS;
}

static void resource_callback_flags(void **flags, size_t *count) {
  static uint32_t all[RESOURCE_CALLBACKS];
  *flags = all;
  *count = 14;
}

static slot tools_hooks[7];

/* --- CLS, CONTEXT_CHECKS, TOOLS_TLS, TOOLS_CONTEXT --- */

static CUresult cls_put(CUcontext context, void *key, void *value, void (*destroy)(CUcontext, void *, void *)) {
  CUresult result = vgs_enter_init();
  return result ? result : vgs_cls_set(context, key, value, destroy);
}

static CUresult cls_delete(CUcontext context, void *key) {
  CUresult result = vgs_enter_init();
  return result ? result : vgs_cls_delete(context, key);
}

static CUresult cls_get(void **value, CUcontext context, void *key) {
  CUresult result = vgs_life_check();
  return result ? result : vgs_cls_get(value, context, key);
}

static slot context_storage[4];

static CUresult check_context(CUcontext context, uint32_t *state, void **detail) {
  (void)context, (void)detail;
  if (state)
    *state = 0;
  return CUDA_SUCCESS;
}

static slot context_checks[4];

static CUresult current_context(CUcontext *context) {
  CUresult result = vgs_enter_init();
  return result ? result : vgs_cuCtxGetCurrent(context);
}

static slot tools_tls[4];

static CUresult context_device(CUcontext context, CUdevice *device) {
  CUresult result = vgs_enter_init();
  return result ? result : vgs_cuCtxGetDevice_v2(device, context);
}

static CUresult context_id(CUcontext context, unsigned long long *id) {
  CUresult result = vgs_enter_init();
  return result ? result : vgs_cuCtxGetId(context, id);
}

/* cuBLAS's triangular solve asks for a stream's internal handle, then for a small number of that handle. */
static CUresult stream_internal(CUcontext context, CUstream stream, void **internal) {
  (void)context;
  if (!internal)
    return CUDA_ERROR_INVALID_VALUE;
  *internal = stream ? (void *)stream : (void *)CU_STREAM_LEGACY;
  return CUDA_SUCCESS;
}

static CUresult stream_number(CUcontext context, void *internal, uint32_t *number) {
  unsigned long long id;
  (void)context;
  CUresult result = vgs_enter_context();
  if (result || !number)
    return result ? result : CUDA_ERROR_INVALID_VALUE;
  result = vgs_cuStreamGetId(internal, &id);
  if (!result)
    *number = (uint32_t)id;
  return result;
}

static slot tools_context[95];

/* --- SM_TOPOLOGY (cuBLASLt 13), MODULE_FUNCTIONS (cuFFT 12): measured against the real driver, facts of 2026 --- */

/* The location of each pair of multiprocessors: two arrays, one byte a pair, owned by the caller until it frees them
 * with slot 13. */
static CUresult topology_get(uint8_t **gpc_of_tpc, uint8_t **tpc_in_gpc) {
  CUresult result = vgs_enter_init();
  if (result)
    return result;
  struct vgs_context *context = vgs_context_current();
  const struct vgs_device *device = vgs_device(context ? context->device : 0);
  if (!gpc_of_tpc || !tpc_in_gpc)
    return CUDA_ERROR_INVALID_VALUE;
  if (!device || !device->tpc_count)
    return CUDA_ERROR_NOT_SUPPORTED;
  uint8_t *first = malloc(device->tpc_count), *second = malloc(device->tpc_count);
  if (!first || !second) {
    free(first);
    free(second);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memcpy(first, device->gpc_of_tpc, device->tpc_count);
  memcpy(second, device->tpc_in_gpc, device->tpc_count);
  *gpc_of_tpc = first;
  *tpc_in_gpc = second;
  return CUDA_SUCCESS;
}

static CUresult topology_free(uint8_t *gpc_of_tpc, uint8_t *tpc_in_gpc) {
  free(gpc_of_tpc);
  free(tpc_in_gpc);
  return CUDA_SUCCESS;
}

static slot sm_topology[17];

/* Call the caller's function for each function of a module; returns their number. */
static int module_functions_each(CUcontext context, CUmodule module, void (*each)(void *, CUfunction), void *user) {
  unsigned int count = 0;
  (void)context;
  if (!each || vgs_enter_context() || vgs_cuModuleGetFunctionCount(&count, module) || !count)
    return 0;
  CUfunction *functions = calloc(count, sizeof *functions);
  if (!functions || vgs_cuModuleEnumerateFunctions(functions, count, module))
    count = 0;
  for (unsigned int i = 0; i < count; i++)
    each(user, functions[i]);
  free(functions);
  return (int)count;
}

static slot module_functions[99];

/* --- INTEGRITY_CHECK: proves that this is the library the runtime found, by values only the process knows --- */

struct __attribute__((packed)) integrity_device {
  uint8_t uuid[16];
  int32_t domain, bus, slot;
};

struct __attribute__((packed)) integrity_message {
  uint32_t driver_version, runtime_version, pid, thread;
  uint64_t cudart_interface, integrity_check, function, unix_seconds;
  struct integrity_device devices[VGS_DEVICE_MAX];
};

static CUresult integrity(uint32_t version, uint64_t unix_seconds, uint64_t answer[2]);
static slot integrity_check[3];

static CUresult integrity(uint32_t version, uint64_t unix_seconds, uint64_t answer[2]) {
  static const uint8_t key[16] = {0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52,
                                  0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f};
  if (!answer)
    return CUDA_ERROR_INVALID_VALUE;
  if (version % 10 < 2) {
    answer[0] = version % 10 ? 0x1841181c03cb675c : 0x3341181c03cb675c;
    answer[1] = 0x8ed383aa1f4cd1e8;
    return CUDA_SUCCESS;
  }
  struct integrity_message message = {.driver_version = (uint32_t)vgs_driver_version_answered(),
                                      .runtime_version = version,
                                      .pid = (uint32_t)getpid(),
                                      .thread = (uint32_t)(uintptr_t)pthread_self(),
                                      .cudart_interface = (uintptr_t)cudart_interface,
                                      .integrity_check = (uintptr_t)integrity_check,
                                      .function = (uintptr_t)integrity_check[1],
                                      .unix_seconds = unix_seconds};
  int count = vgs_device_count();
  for (CUdevice i = 0; i < count; i++) {
    const struct vgs_device *device = vgs_device(i);
    memcpy(message.devices[i].uuid, device->uuid, 16);
    message.devices[i].domain = device->attributes[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID];
    message.devices[i].bus = device->attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID];
    message.devices[i].slot = device->attributes[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID];
  }
  size_t nbytes = offsetof(struct integrity_message, devices) + (size_t)count * sizeof message.devices[0];
  vgs_hmac_md2(key, &message, nbytes, (uint8_t *)answer);
  return CUDA_SUCCESS;
}

/* --- the tables by UUID --- */

static const struct table {
  const char *name;
  uint8_t uuid[16];
  slot *slots;
  unsigned count;
  bool has_size; /* slot 0 is the table's size in bytes */
} tables[] = {
    {"CUDART_INTERFACE",
     {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9},
     cudart_interface,
     13,
     true},
    {"TOOLS_RT_CB_HOOKS",
     {0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66},
     tools_hooks,
     7,
     true},
    {"TOOLS_TLS",
     {0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc},
     tools_tls,
     4,
     true},
    {"CLS",
     {0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93},
     context_storage,
     4,
     false},
    {"INTEGRITY_CHECK",
     {0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2},
     integrity_check,
     3,
     true},
    {"CONTEXT_CHECKS",
     {0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e},
     context_checks,
     4,
     true},
    {"TOOLS_CONTEXT",
     {0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8, 0xf2},
     tools_context,
     95,
     true},
    {"SM_TOPOLOGY",
     {0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45, 0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b, 0xca},
     sm_topology,
     17,
     true},
    {"MODULE_FUNCTIONS",
     {0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99, 0x1e},
     module_functions,
     99,
     true},
};
enum { TABLE_COUNT = sizeof tables / sizeof tables[0] };

static void fill_tables(void) {
  for (unsigned i = 0; i < TABLE_COUNT; i++) {
    for (unsigned j = 0; j < tables[i].count; j++)
      tables[i].slots[j] = SLOT(not_supported);
    if (tables[i].has_size)
      tables[i].slots[0] = SIZE_SLOT(tables[i].count);
  }
  cudart_interface[1] = SLOT(load_module);
  cudart_interface[2] = SLOT(primary_context);
  cudart_interface[6] = SLOT(load_module);
  cudart_interface[7] = SLOT(release_module);
  cudart_interface[8] = SLOT(load_module_of_container);
  cudart_interface[12] = SLOT(zero); /* dynamic runtimes from 13.1 on: where the driver would preload its compilers */
  tools_hooks[2] = SLOT(runtime_callback_flags);
  tools_hooks[6] = SLOT(resource_callback_flags);
  tools_tls[2] = SLOT(current_context);
  context_storage[0] = SLOT(cls_put);
  context_storage[1] = SLOT(cls_delete);
  context_storage[2] = SLOT(cls_get);
  context_storage[3] = NULL;
  integrity_check[1] = SLOT(integrity);
  context_checks[2] = SLOT(check_context);
  context_checks[3] = SLOT(zero);
  tools_context[3] = SLOT(context_device);
  tools_context[4] = SLOT(context_id);
  tools_context[39] = SLOT(stream_number);
  tools_context[51] = SLOT(stream_internal);
  sm_topology[4] = SLOT(topology_get);
  sm_topology[13] = SLOT(topology_free);
  module_functions[7] = SLOT(module_functions_each);
}

CUresult vgs_cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId) {
  static pthread_once_t filled = PTHREAD_ONCE_INIT;
  if (!ppExportTable || !pExportTableId)
    return CUDA_ERROR_INVALID_VALUE;
  pthread_once(&filled, fill_tables);
  for (unsigned i = 0; i < TABLE_COUNT; i++)
    if (!memcmp(tables[i].uuid, pExportTableId->bytes, 16)) {
      *ppExportTable = tables[i].slots;
      return CUDA_SUCCESS;
    }
  const unsigned char *b = pExportTableId->bytes;
  vgs_log(VGS_LOG_INFO, "private table %02x%02x%02x%02x-%02x%02x-%02x%02x-... is refused", b[0], b[1], b[2], b[3], b[4],
          b[5], b[6], b[7]);
  *ppExportTable = NULL; /* both an error and NULL: some callers check one, some the other */
  return CUDA_ERROR_INVALID_VALUE;
}
