/* Memory that a call allocates and another frees: its size is known before, so it counts before the driver is asked.
 * Two sessions of a tenant that want its last bytes may both be refused, but never do both get them. Only functions
 * that allocate or free are replaced: launches and copies call the driver's as without a limit. */
#include "vgx_limit.h"

#include "vgw_enums.h"
#include "vgw_shape.h"
#include "vgx_charge.h"
#include "vgx_limit_driver.h"
#include "vgx_limit_graph.h"
#include "vgx_limit_pool.h"

#define GRAIN 512u      /* cuMemAlloc's addresses are multiples of it */
#define TILE_NBYTES 64u /* the rows of an array of several rows are padded to a multiple of this, */
#define TILE_ROWS 8u    /* and the number of its rows to a multiple of this */
#define HEAP_NBYTES                                                                                                    \
  (8ull << 20) /* the default size of a context's malloc heap, which the driver's own memory includes */
enum { LOCATION_DEVICE = 1 };

static struct vgx_backend limited;
static _Thread_local CUcontext current;

static uint64_t rounded(uint64_t nbytes, uint64_t grain) {
  return nbytes > UINT64_MAX - grain ? UINT64_MAX : (nbytes + grain - 1) / grain * grain;
}

/* The context that destroys what is allocated now. NULL: a primary context, or a green one, which has its memory. */
static CUcontext owner_now(void) { return vgx_charge_has(VGX_CHARGE_CONTEXT, (uintptr_t)current) ? current : NULL; }

/* Have an entry own `nbytes`, which are counted, if the driver has allocated. False: memory is short. */
static bool settle(CUresult result, enum vgx_charge_kind kind, uint64_t key, CUdevice device, uint64_t nbytes) {
  bool kept = result == CUDA_SUCCESS && vgx_charge_add(kind, key, device, nbytes, owner_now());
  if (!kept)
    vgx_charge_change(device, nbytes, 0);
  return kept || result != CUDA_SUCCESS;
}

static int begin(void) { return vgx_charge_begin(), 0; }
static void finish(const int *unused) { (void)unused, vgx_charge_finish(); }

/* From here to the end of the function, what counts and what is allocated may differ. */
#define COUNTING __attribute__((cleanup(finish), unused)) const int counting = begin()

/* --- linear memory --- */

static CUresult alloc(CUdeviceptr *dptr, size_t bytesize) {
  COUNTING;
  CUdevice device = vgx_limit_device();
  uint64_t nbytes = rounded(bytesize, GRAIN);
  CUresult result = vgx_limit_reserve(device, nbytes);
  if (result != CUDA_SUCCESS)
    return result;
  result = vgx_limit_real->cuMemAlloc_v2(dptr, bytesize);
  if (settle(result, VGX_CHARGE_ADDRESS, result ? 0 : *dptr, device, nbytes))
    return result;
  vgx_limit_real->cuMemFree_v2(*dptr);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult alloc_pitch(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height, unsigned int element) {
  COUNTING;
  CUdevice device = vgx_limit_device();
  uint64_t nbytes, more;
  if (__builtin_mul_overflow(rounded(width, GRAIN), height, &nbytes))
    return vgx_limit_reserve(device, UINT64_MAX);
  CUresult result = vgx_limit_reserve(device, nbytes);
  if (result != CUDA_SUCCESS)
    return result;
  result = vgx_limit_real->cuMemAllocPitch_v2(dptr, pitch, width, height, element);
  more = result == CUDA_SUCCESS && *pitch * height > nbytes ? *pitch * height - nbytes : 0;
  if (more && vgx_limit_reserve(device, more) != CUDA_SUCCESS) { /* rows are longer than expected */
    vgx_limit_real->cuMemFree_v2(*dptr);
    result = CUDA_ERROR_OUT_OF_MEMORY;
    more = 0;
  }
  if (settle(result, VGX_CHARGE_ADDRESS, result ? 0 : *dptr, device, nbytes + more))
    return result;
  vgx_limit_real->cuMemFree_v2(*dptr);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult free_address(CUdeviceptr dptr) {
  COUNTING;
  struct vgx_charge_entry *entry = vgx_charge_take(VGX_CHARGE_ADDRESS, dptr);
  CUresult result = vgx_limit_real->cuMemFree_v2(dptr);
  for (CUdevice device = 0; !entry && vgx_charge_is_device(device); device++)
    vgx_limit_look(device); /* a pool's, or a graph's */
  vgx_charge_end(entry, result == CUDA_SUCCESS);
  return result;
}

/* --- physical memory, which counts until it is neither held nor mapped --- */

static CUresult create(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                       unsigned long long flags) {
  COUNTING;
  if (prop->location.type != LOCATION_DEVICE)
    return vgx_limit_real->cuMemCreate(handle, size, prop, flags);
  CUresult result = vgx_limit_reserve(prop->location.id, size);
  if (result != CUDA_SUCCESS)
    return result;
  result = vgx_limit_real->cuMemCreate(handle, size, prop, flags);
  if (settle(result, VGX_CHARGE_PHYSICAL, result ? 0 : *handle, prop->location.id, size))
    return result;
  vgx_limit_real->cuMemRelease(*handle);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult release(CUmemGenericAllocationHandle handle) {
  COUNTING;
  struct vgx_charge_entry *entry = vgx_charge_take(VGX_CHARGE_PHYSICAL, handle);
  CUresult result = vgx_limit_real->cuMemRelease(handle);
  vgx_charge_end(entry, result == CUDA_SUCCESS);
  return result;
}

static CUresult map(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags) {
  CUresult result = vgx_limit_real->cuMemMap(ptr, size, offset, handle, flags);
  if (result != CUDA_SUCCESS || vgx_charge_map(ptr, size, handle))
    return result;
  vgx_limit_real->cuMemUnmap(ptr, size);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult unmap(CUdeviceptr ptr, size_t size) {
  CUresult result = vgx_limit_real->cuMemUnmap(ptr, size);
  if (result == CUDA_SUCCESS)
    vgx_charge_unmap(ptr, size);
  return result;
}

/* --- arrays --- */

/* Bytes of an array, a level being half of the level above; 0: it has no memory of its own. */
static uint64_t array_nbytes(const CUDA_ARRAY3D_DESCRIPTOR *desc, uint32_t levels) {
  uint64_t sum = 0, width = desc->Width, height = desc->Height, depth = desc->Depth;
  uint64_t element = vgw_element_nbytes(desc->Format, desc->NumChannels);
  if (desc->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
    return 0;
  for (uint32_t level = 0; level < levels && level < 32; level++) {
    uint64_t row = width * element, rows = height ? rounded(height, TILE_ROWS) : 1, nbytes;
    row = height ? rounded(row, TILE_NBYTES) : row;
    if (__builtin_mul_overflow(row, rows, &nbytes) || __builtin_mul_overflow(nbytes, depth ? depth : 1, &nbytes) ||
        __builtin_add_overflow(sum, nbytes, &sum))
      return UINT64_MAX;
    width = width > 1 ? width / 2 : 1;
    height = height > 1 ? height / 2 : height;
    depth = depth > 1 && !(desc->Flags & CUDA_ARRAY3D_LAYERED) ? depth / 2 : depth;
  }
  return rounded(sum, GRAIN);
}

static CUresult create_array(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc) {
  COUNTING;
  CUdevice device = vgx_limit_device();
  uint64_t nbytes = array_nbytes(desc, 1);
  CUresult result = nbytes ? vgx_limit_reserve(device, nbytes) : CUDA_SUCCESS;
  if (result != CUDA_SUCCESS)
    return result;
  result = vgx_limit_real->cuArray3DCreate_v2(array, desc);
  if (settle(result, VGX_CHARGE_ARRAY, result ? 0 : (uintptr_t)*array, device, nbytes))
    return result;
  vgx_limit_real->cuArrayDestroy(*array);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult destroy_array(CUarray array) {
  COUNTING;
  struct vgx_charge_entry *entry = vgx_charge_take(VGX_CHARGE_ARRAY, (uintptr_t)array);
  CUresult result = vgx_limit_real->cuArrayDestroy(array);
  vgx_charge_end(entry, result == CUDA_SUCCESS);
  return result;
}

static CUresult create_mipmap(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int levels) {
  COUNTING;
  CUdevice device = vgx_limit_device();
  uint64_t nbytes = array_nbytes(desc, levels);
  CUresult result = nbytes ? vgx_limit_reserve(device, nbytes) : CUDA_SUCCESS;
  if (result != CUDA_SUCCESS)
    return result;
  result = vgx_limit_real->cuMipmappedArrayCreate(array, desc, levels);
  if (settle(result, VGX_CHARGE_MIPMAP, result ? 0 : (uintptr_t)*array, device, nbytes))
    return result;
  vgx_limit_real->cuMipmappedArrayDestroy(*array);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult destroy_mipmap(CUmipmappedArray array) {
  COUNTING;
  struct vgx_charge_entry *entry = vgx_charge_take(VGX_CHARGE_MIPMAP, (uintptr_t)array);
  CUresult result = vgx_limit_real->cuMipmappedArrayDestroy(array);
  vgx_charge_end(entry, result == CUDA_SUCCESS);
  return result;
}

/* --- contexts, which destroy what was allocated in them --- */

static bool is_gone(enum vgx_charge_kind kind, uint64_t key) {
  uint64_t base;
  return kind != VGX_CHARGE_ADDRESS ||
         vgx_limit_real->cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, key) != CUDA_SUCCESS;
}

static CUresult set_current(CUcontext context) {
  CUresult result = vgx_limit_real->cuCtxSetCurrent(context);
  if (result == CUDA_SUCCESS)
    current = context;
  return result;
}

static CUresult create_context(CUcontext *context, unsigned int flags, CUdevice device) {
  CUcontext made = NULL;
  CUresult result = vgx_limit_real->cuCtxCreate_v2(&made, flags, device);
  if (result != CUDA_SUCCESS)
    return result;
  result = vgx_charge_add(VGX_CHARGE_CONTEXT, (uintptr_t)made, device, 0, NULL) ? vgx_limit_made(device)
                                                                                : CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) {
    *context = made;
    return result;
  }
  vgx_charge_end(vgx_charge_take(VGX_CHARGE_CONTEXT, (uintptr_t)made), true);
  vgx_limit_real->cuCtxDestroy_v2(made);
  vgx_limit_unmade(device);
  return result;
}

static CUresult end_context(CUcontext context, CUdevice device, struct vgx_charge_entry *entry) {
  COUNTING;
  vgx_charge_take_of(context, device);
  vgx_limit_context_ends();
  CUresult result = vgx_limit_real->cuCtxDestroy_v2(context);
  vgx_charge_end_of(context, device, result == CUDA_SUCCESS ? is_gone : NULL);
  vgx_charge_end(entry, result == CUDA_SUCCESS);
  return result;
}

static CUresult destroy_context(CUcontext context) {
  struct vgx_charge_entry *entry = vgx_charge_take(VGX_CHARGE_CONTEXT, (uintptr_t)context);
  CUdevice device = entry ? vgx_charge_entry_device(entry) : -1;
  CUresult result = end_context(context, device, entry);
  vgx_limit_unmade(device);
  return result;
}

static CUresult retain_primary(CUcontext *context, CUdevice device) {
  CUcontext made = NULL;
  CUresult result = vgx_limit_real->cuDevicePrimaryCtxRetain(&made, device);
  if (result != CUDA_SUCCESS)
    return result;
  result = vgx_limit_made(device);
  if (result == CUDA_SUCCESS) {
    *context = made;
    return result;
  }
  vgx_limit_real->cuDevicePrimaryCtxRelease_v2(device);
  vgx_limit_unmade(device);
  return result;
}

static CUresult end_primary_counting(CUdevice device, CUresult (*call)(CUdevice)) {
  COUNTING;
  vgx_charge_take_of(NULL, device);
  vgx_limit_context_ends();
  CUresult result = call(device);
  vgx_charge_end_of(NULL, device, result == CUDA_SUCCESS ? is_gone : NULL);
  return result;
}

static CUresult end_primary(CUdevice device, CUresult (*call)(CUdevice)) {
  CUresult result = end_primary_counting(device, call);
  vgx_limit_look(device);
  vgx_limit_unmade(device);
  return result;
}

static CUresult release_primary(CUdevice device) {
  return end_primary(device, vgx_limit_real->cuDevicePrimaryCtxRelease_v2);
}

static CUresult reset_primary(CUdevice device) {
  return end_primary(device, vgx_limit_real->cuDevicePrimaryCtxReset_v2);
}

/* Stacks are allocated at once, for all threads that the device can run: 16 GiB on an H200 for stacks of 64 KiB. */
static CUresult set_other_limit(CUdevice device, int limit, size_t value) {
  size_t before;
  bool known = vgx_limit_real->cuCtxGetLimit && vgx_limit_real->cuCtxGetLimit(&before, limit) == CUDA_SUCCESS;
  CUresult result = vgx_limit_real->cuCtxSetLimit(limit, value);
  if (result != CUDA_SUCCESS || (result = vgx_limit_made(device)) == CUDA_SUCCESS)
    return result;
  if (known)
    vgx_limit_real->cuCtxSetLimit(limit, before);
  vgx_limit_unmade(device);
  return result;
}

/* A context's heap for its kernels' malloc is device memory, of the size that the program chooses. */
static CUresult set_limit(int limit, size_t value) {
  CUdevice device = vgx_limit_device();
  if (limit != CU_LIMIT_MALLOC_HEAP_SIZE)
    return set_other_limit(device, limit, value);
  uint64_t nbytes = value > HEAP_NBYTES ? value - HEAP_NBYTES : 0;
  CUresult result = vgx_limit_reserve(device, nbytes);
  if (result != CUDA_SUCCESS)
    return result;
  result = vgx_limit_real->cuCtxSetLimit(limit, value);
  return settle(result, VGX_CHARGE_HEAP, (uintptr_t)current, device, nbytes) ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

/* --- what the program sees --- */

static CUresult get_info(size_t *left, size_t *total) {
  CUdevice device = vgx_limit_device();
  CUresult result = vgx_limit_real->cuMemGetInfo_v2(left, total);
  if (result != CUDA_SUCCESS)
    return result;
  vgx_limit_look(device);
  int64_t room = vgx_charge_room(device);
  uint64_t most = room < 0 ? 0 : (uint64_t)room;
  *left = *left < most ? *left : most;
  *total = *total < vgx_charge_limit() ? *total : vgx_charge_limit();
  return CUDA_SUCCESS;
}

const struct vgx_backend *vgx_limit_backend(const struct vgx_backend *backend, struct vgw_ledger *ledger, uint32_t row,
                                            uint64_t limit_nbytes, const uint8_t *host_devices, uint32_t count) {
  vgx_charge_init(ledger, row, limit_nbytes, host_devices, count);
  limited = *backend;
#define REPLACE(function, with)                                                                                        \
  if (backend->function)                                                                                               \
    limited.function = with;
  REPLACE(cuMemAlloc_v2, alloc)
  REPLACE(cuMemAllocPitch_v2, alloc_pitch)
  REPLACE(cuMemFree_v2, free_address)
  REPLACE(cuMemCreate, create)
  REPLACE(cuMemRelease, release)
  REPLACE(cuMemMap, map)
  REPLACE(cuMemUnmap, unmap)
  REPLACE(cuArray3DCreate_v2, create_array)
  REPLACE(cuArrayDestroy, destroy_array)
  REPLACE(cuMipmappedArrayCreate, create_mipmap)
  REPLACE(cuMipmappedArrayDestroy, destroy_mipmap)
  REPLACE(cuCtxSetCurrent, set_current)
  REPLACE(cuCtxCreate_v2, create_context)
  REPLACE(cuCtxDestroy_v2, destroy_context)
  REPLACE(cuDevicePrimaryCtxRetain, retain_primary)
  REPLACE(cuDevicePrimaryCtxRelease_v2, release_primary)
  REPLACE(cuDevicePrimaryCtxReset_v2, reset_primary)
  REPLACE(cuCtxSetLimit, set_limit)
  REPLACE(cuMemGetInfo_v2, get_info)
  limited.cuMemMapArrayAsync = NULL; /* which tile has which memory is not followed */
  vgx_limit_pools(backend, &limited);
  vgx_limit_graphs(&limited);
  vgx_limit_driver(&limited);
  return &limited;
}
