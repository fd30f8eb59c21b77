/* Functions: attributes, compiling for a block shape, occupancy. Locking: the runtime lock; compiling happens without
 * it. */
#include "vgx_sim_function.h"

#include <stdlib.h>
#include <string.h>

#include "vgx_sim_kernel.h"
#include "vgx_sim_queue.h"
#include "vgx_sim_runtime.h"

#define VARIANTS_MAX 4096u /* block shapes of one kernel */

static bool is_function(CUfunction f) { return f && f->magic == VGX_SIM_FUNCTION; }

static CUresult begin_nothing(uint64_t *begun_ns) {
  *begun_ns = 0;
  return CUDA_SUCCESS;
}

static void end_nothing(uint64_t begun_ns) { (void)begun_ns; }

static CUresult (*begin_compiling)(uint64_t *begun_ns) = begin_nothing;
static void (*end_compiling)(uint64_t begun_ns) = end_nothing;

void vgx_sim_set_compiling(CUresult (*begin)(uint64_t *begun_ns), void (*end)(uint64_t begun_ns)) {
  begin_compiling = begin;
  end_compiling = end;
}

static CUresult compile(CUfunction f, struct vgx_sim_variant *v) {
  char why[VGX_SIM_WHY_NBYTES] = "";
  CUmodule m = f->module;
  uint32_t capacity = m->variable_count ? m->variable_count : 1, count = 0;
  uint32_t *indexes = calloc(capacity, sizeof *indexes);
  v->symbols = calloc(capacity, sizeof *v->symbols);
  uint64_t begun_ns;
  CUresult result = begin_compiling(&begun_ns);
  if (result == CUDA_SUCCESS && !(indexes && v->symbols))
    result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) {
    result = vgx_sim_hooks->compile(f->info.kernel, v->block[0], v->block[1], v->block[2], v->flags, &v->followed,
                                    m->addresses, &v->compiled, indexes, capacity, &count, why);
    end_compiling(begun_ns);
  }
  if (result == CUDA_SUCCESS && (!v->compiled.code || count > capacity))
    result = CUDA_ERROR_UNKNOWN;
  for (uint32_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
    if (indexes[i] >= m->variable_count)
      result = CUDA_ERROR_UNKNOWN;
    else
      v->symbols[i] = m->addresses[indexes[i]];
  }
  free(indexes);
  if (result != CUDA_SUCCESS)
    vgx_sim_reason(result, true, "kernel %s, block %u x %u x %u, not compiled (%d): %s", f->name, v->block[0],
                   v->block[1], v->block[2], result, why);
  /* A card would have run it: a program that ignores errors must not continue with undefined memory contents. */
  if (result != CUDA_SUCCESS && f->module->ctx)
    vgx_sim_fail_context(f->module->ctx, result);
  return result;
}

CUresult vgx_sim_function_compile(CUfunction f, const uint32_t block[3], uint32_t flags,
                                  const struct vgx_sim_followed *followed, const struct vgx_sim_variant **variant) {
  uint32_t count = 0;
  vgx_sim_lock();
  struct vgx_sim_variant *v = f->variants;
  for (; v && (memcmp(v->block, block, sizeof v->block) != 0 || v->flags != flags ||
               memcmp(&v->followed, followed, sizeof *followed) != 0);
       v = v->next)
    count++;
  if (v) {
    while (!v->ready) /* another thread compiles it */
      vgx_sim_wait_progress_locked();
    vgx_sim_unlock();
    *variant = v;
    return v->result;
  }
  v = count < VARIANTS_MAX ? calloc(1, sizeof *v) : NULL;
  if (v) {
    memcpy(v->block, block, sizeof v->block);
    v->flags = flags;
    v->followed = *followed;
    v->next = f->variants;
    f->variants = v;
  }
  vgx_sim_unlock();
  if (!v)
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = compile(f, v);
  vgx_sim_lock();
  v->result = result;
  v->ready = true;
  vgx_sim_notify_locked();
  vgx_sim_unlock();
  *variant = v;
  return result;
}

CUresult vgx_sim_cuFuncGetAttribute(int *pi, int attrib, CUfunction hfunc) {
  if (!pi || attrib < 0 || attrib >= VGW_FUNC_ATTRIBUTE_COUNT)
    return CUDA_ERROR_INVALID_VALUE;
  vgx_sim_lock();
  CUresult result = is_function(hfunc) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS)
    *pi = hfunc->attributes[attrib];
  vgx_sim_unlock();
  return result;
}

CUresult vgx_sim_cuFuncSetAttribute(CUfunction hfunc, int attrib, int value) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  CUfunction f;
  result = vgx_sim_function_pin(ctx, hfunc, &f);
  if (result != CUDA_SUCCESS)
    return result;
  result = vgx_sim_function_set(f, attrib, value);
  vgx_sim_function_unpin(f);
  return result;
}

CUresult vgx_sim_cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize) {
  if (!paramOffset)
    return CUDA_ERROR_INVALID_VALUE;
  vgx_sim_lock();
  CUresult result = is_function(func) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS && paramIndex >= func->info.param_count)
    result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) {
    *paramOffset = func->param_offsets[paramIndex];
    if (paramSize)
      *paramSize = func->param_nbytes[paramIndex];
  }
  vgx_sim_unlock();
  return result;
}

CUresult vgx_sim_cuFuncGetName(const char **name, CUfunction hfunc) {
  if (!name)
    return CUDA_ERROR_INVALID_VALUE;
  if (!is_function(hfunc))
    return CUDA_ERROR_INVALID_HANDLE;
  *name = hfunc->name;
  return CUDA_SUCCESS;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Blocks of `threads` threads that fit one multiprocessor, by the rules of CUDA's occupancy calculator: threads, warps,
 * registers (in units of 256 per warp, warps in fours) and shared memory (in units of 128 bytes, plus what the system
 * reserves). */
int64_t vgx_sim_active_blocks(const struct vgx_sim_device *d, CUfunction f, int64_t threads, uint64_t dynamic_nbytes) {
  int64_t warp = vgx_sim_attribute(d, VGX_SIM_WARP_SIZE, 32), warps = (threads + warp - 1) / warp;
  if (threads > f->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK])
    return 0;
  int64_t most_shared = vgx_sim_attribute(d, VGX_SIM_SHARED_PER_BLOCK_OPTIN, 49152);
  if (dynamic_nbytes > (uint64_t)most_shared || f->info.shared_nbytes + dynamic_nbytes > (uint64_t)most_shared)
    return 0;
  int64_t blocks = smaller(vgx_sim_attribute(d, VGX_SIM_MAX_BLOCKS_PER_SM, 16),
                           vgx_sim_attribute(d, VGX_SIM_MAX_THREADS_PER_SM, 1024) / warp / warps);
  int64_t per_warp = ((int64_t)f->info.register_count * warp + 255) / 256 * 256;
  if (per_warp)
    blocks = smaller(blocks, vgx_sim_attribute(d, VGX_SIM_REGISTERS_PER_SM, 65536) / per_warp / 4 * 4 / warps);
  int64_t shared =
      (int64_t)(f->info.shared_nbytes + dynamic_nbytes) + vgx_sim_attribute(d, VGX_SIM_RESERVED_SHARED_PER_BLOCK, 0);
  shared = (shared + 127) / 128 * 128;
  if (shared)
    blocks = smaller(blocks, vgx_sim_attribute(d, VGX_SIM_SHARED_PER_SM, 65536) / shared);
  return blocks;
}

CUresult vgx_sim_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func, int blockSize,
                                                                      size_t dynamicSMemSize, unsigned int flags) {
  CUcontext ctx;
  CUfunction f;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  if (!numBlocks || blockSize <= 0 || flags > 1)
    return CUDA_ERROR_INVALID_VALUE;
  result = vgx_sim_function_pin(ctx, func, &f);
  if (result != CUDA_SUCCESS)
    return result;
  *numBlocks = (int)vgx_sim_active_blocks(ctx->device, f, blockSize, dynamicSMemSize);
  vgx_sim_function_unpin(f);
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, CUfunction func, int numBlocks,
                                                         int blockSize) {
  CUcontext ctx;
  CUfunction f;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  if (!dynamicSmemSize || numBlocks <= 0 || blockSize <= 0)
    return CUDA_ERROR_INVALID_VALUE;
  result = vgx_sim_function_pin(ctx, func, &f);
  if (result != CUDA_SUCCESS)
    return result;
  const struct vgx_sim_device *d = ctx->device;
  int64_t share = vgx_sim_attribute(d, VGX_SIM_SHARED_PER_SM, 65536) / numBlocks / 128 * 128;
  int64_t available = share - vgx_sim_attribute(d, VGX_SIM_RESERVED_SHARED_PER_BLOCK, 0) - f->info.shared_nbytes;
  available = smaller(available, vgx_sim_attribute(d, VGX_SIM_SHARED_PER_BLOCK_OPTIN, 49152) - f->info.shared_nbytes);
  if (available < 0 || vgx_sim_active_blocks(d, f, blockSize, 0) < numBlocks)
    result = CUDA_ERROR_INVALID_VALUE; /* more blocks than a multiprocessor holds, whatever they use */
  else
    *dynamicSmemSize = (size_t)available;
  vgx_sim_function_unpin(f);
  return result;
}
