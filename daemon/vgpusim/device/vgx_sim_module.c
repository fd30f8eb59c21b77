/* Modules: an image in a context, its variables in device memory, its functions made when they are first asked for.
 *
 * Locking: the runtime lock for lists and pins. Hooks are called without it, so two threads may load or describe at
 * once; what they make is added under the lock, and the second to describe a function drops its own. */
#include "vgx_sim_module.h"

#include <stdlib.h>
#include <string.h>

#include "vgx_sim_defined.h"
#include "vgx_sim_queue.h"
#include "vgx_sim_runtime.h"

#define PARAMS_MAX 4096u
#define ALIGN_MAX 4096u
#define VARIABLES_MAX (1u << 20)

static void free_function_parts(CUfunction f) {
  for (struct vgx_sim_variant *v = f->variants, *next; v; v = next) {
    next = v->next;
    free(v->symbols);
    free(v);
  }
  f->variants = NULL;
  free(f->param_offsets);
  free(f->param_nbytes);
  f->param_offsets = f->param_nbytes = NULL;
}

static void free_variables(CUmodule m) {
  for (uint32_t i = 0; m->variable_names && i < m->variable_count; i++)
    free(m->variable_names[i]);
  free(m->variable_names);
  free(m->variables);
  free(m->addresses);
  m->variable_names = NULL;
  m->variables = NULL;
  m->addresses = NULL;
}

/* Ask for the variables, place them one after the other in one allocation, and fill them. */
static CUresult place_variables(CUmodule m) {
  uint32_t count = m->variable_count;
  char name[VGX_SIM_NAME_NBYTES];
  m->variables = calloc(count, sizeof *m->variables);
  m->variable_names = calloc(count, sizeof *m->variable_names);
  m->addresses = calloc(count, sizeof *m->addresses);
  if (!m->variables || !m->variable_names || !m->addresses)
    return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t total = 0, capacity = m->ctx->device->properties.memory_nbytes;
  for (uint32_t i = 0; i < count; i++) {
    struct vgx_sim_variable *v = &m->variables[i];
    CUresult result = vgx_sim_hooks->describe_variable(m->image, i, name, v);
    if (result != CUDA_SUCCESS)
      return result;
    m->variable_names[i] = strdup(name);
    if (!m->variable_names[i] || v->nbytes > capacity)
      return CUDA_ERROR_OUT_OF_MEMORY;
    if (v->align == 0 || v->align > ALIGN_MAX || v->align & (v->align - 1))
      return CUDA_ERROR_INVALID_IMAGE;
    total = vgx_sim_round_up(total, v->align > 16 ? v->align : v->nbytes >= 256 ? 256 : 16);
    m->addresses[i] = total; /* an offset as yet */
    total += v->nbytes;
    if (total > capacity)
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  /* Rounded up to whole pages, so that the base is aligned for any variable. */
  CUresult result = vgx_sim_arena_allocate(&m->ctx->device->arena, vgx_sim_round_up(total ? total : 1, ALIGN_MAX),
                                           m->ctx, NULL, &m->base);
  if (result != CUDA_SUCCESS)
    return result;
  vgx_sim_watch_defined(m->base, total); /* variables without an initialiser are zero */
  for (uint32_t i = 0; i < count; i++) {
    uint64_t elsewhere = m->library ? vgx_sim_managed_address(m->library, m->variable_names[i]) : 0;
    m->addresses[i] = elsewhere ? elsewhere : m->base + m->addresses[i];
  }
  for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++)
    if (m->addresses[i] - m->base < total) /* a variable placed elsewhere was initialised already */
      result = vgx_sim_hooks->initial_bytes(m->image, i, m->addresses, (uint8_t *)m->addresses[i]);
  return result;
}

/* From here until end_load, the end of the context waits. */
static CUresult begin_load(CUcontext ctx) {
  if (!ctx)
    return CUDA_SUCCESS;
  vgx_sim_lock();
  CUresult result = ctx->destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : ctx->sticky;
  ctx->loading += result == CUDA_SUCCESS;
  vgx_sim_unlock();
  return result;
}

static void end_load(CUcontext ctx) {
  if (!ctx)
    return;
  vgx_sim_lock();
  ctx->loading--;
  vgx_sim_notify_locked();
  vgx_sim_unlock();
}

/* Load an image for a context, or for none: only its kernels are described. */
static CUresult load_begun(CUcontext ctx, CUlibrary library, const void *image, uint64_t nbytes, CUmodule *made) {
  char why[VGX_SIM_WHY_NBYTES] = "";
  CUmodule m = calloc(1, sizeof *m);
  if (!m)
    return CUDA_ERROR_OUT_OF_MEMORY;
  m->magic = VGX_SIM_MODULE;
  m->ctx = ctx;
  m->library = library;
  CUresult result = vgx_sim_hooks->load_image(ctx ? ctx->device->index : 0, image, nbytes, &m->image, &m->kernel_count,
                                              &m->variable_count, why);
  if (result != CUDA_SUCCESS) {
    vgx_sim_reason(result, false, "an image of %llu bytes cannot be loaded (%d): %s", (unsigned long long)nbytes,
                   result, why);
    free(m);
    return result;
  }
  if (m->variable_count > VARIABLES_MAX)
    result = CUDA_ERROR_INVALID_IMAGE;
  else if (ctx && m->variable_count)
    result = place_variables(m);
  vgx_sim_lock();
  if (result == CUDA_SUCCESS && ctx && (ctx->destroyed || ctx->sticky))
    result = ctx->destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : ctx->sticky;
  if (result == CUDA_SUCCESS && ctx) {
    m->next = ctx->modules;
    ctx->modules = m;
  }
  vgx_sim_unlock();
  if (result != CUDA_SUCCESS) {
    vgx_sim_module_unload(m);
    free(m);
    return result;
  }
  *made = m;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_module_load(CUcontext ctx, CUlibrary library, const void *image, uint64_t nbytes, CUmodule *made) {
  if (!vgx_sim_hooks)
    return CUDA_ERROR_NOT_INITIALIZED;
  CUresult result = begin_load(ctx);
  if (result != CUDA_SUCCESS)
    return result;
  result = load_begun(ctx, library, image, nbytes, made);
  end_load(ctx);
  return result;
}

void vgx_sim_module_unload(CUmodule m) {
  vgx_sim_lock();
  m->magic = VGX_SIM_DEAD;
  for (CUfunction f = m->functions; f; f = f->next)
    f->magic = VGX_SIM_DEAD;
  while (m->pins) /* this ends soon: a pin lasts only for a launch call */
    vgx_sim_wait_progress_locked();
  vgx_sim_unlock();
  if (m->ctx)
    vgx_sim_wait_context(m->ctx); /* launches of its kernels */
  for (CUfunction f = m->functions; f; f = f->next)
    free_function_parts(f);
  if (m->base)
    vgx_sim_arena_free(&m->ctx->device->arena, m->base, NULL);
  free_variables(m);
  vgx_sim_hooks->unload_image(m->image);
}

/* Take a module out of its context's list. Runtime lock held. */
static void unlink_module(CUmodule m) {
  for (CUmodule *link = m->ctx ? &m->ctx->modules : NULL; link && *link; link = &(*link)->next)
    if (*link == m) {
      *link = m->next;
      return;
    }
}

void vgx_sim_unload_modules(CUcontext ctx) {
  for (;;) {
    vgx_sim_lock();
    CUmodule m = ctx->modules;
    if (m) {
      ctx->modules = m->next;
      if (m->library)
        for (CUmodule *link = &m->library->modules; *link; link = &(*link)->library_next)
          if (*link == m) {
            *link = m->library_next;
            break;
          }
    }
    vgx_sim_unlock();
    if (!m)
      return;
    vgx_sim_module_unload(m); /* the struct is kept, so that old handles are recognised */
  }
}

static CUresult describe(CUmodule m, const char *name, CUfunction *made) {
  char why[VGX_SIM_WHY_NBYTES] = "";
  CUfunction f = calloc(1, sizeof *f);
  if (f) {
    f->name = strdup(name);
    f->param_offsets = calloc(PARAMS_MAX, sizeof *f->param_offsets);
    f->param_nbytes = calloc(PARAMS_MAX, sizeof *f->param_nbytes);
  }
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (f && f->name && f->param_offsets && f->param_nbytes)
    result =
        vgx_sim_hooks->describe_kernel(m->image, name, &f->info, f->param_offsets, f->param_nbytes, PARAMS_MAX, why);
  if (result == CUDA_SUCCESS && f->info.param_count > PARAMS_MAX)
    result = CUDA_ERROR_INVALID_IMAGE;
  if (result != CUDA_SUCCESS) {
    if (result != CUDA_ERROR_NOT_FOUND)
      vgx_sim_reason(result, false, "kernel %s (%d): %s", name, result, why);
    if (f) {
      free_function_parts(f);
      free(f->name);
    }
    free(f);
    return result;
  }
  f->magic = VGX_SIM_FUNCTION;
  f->module = m;
  const struct vgx_sim_kernel_info *i = &f->info;
  const struct vgx_sim_device *device = m->ctx ? m->ctx->device : vgx_sim_device_at(0);
  int64_t shared = vgx_sim_attribute(device, VGX_SIM_SHARED_PER_BLOCK, 49152);
  int32_t *a = f->attributes;
  a[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = (int32_t)i->max_threads;
  a[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES] = (int32_t)i->shared_nbytes;
  a[CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES] = (int32_t)i->const_nbytes;
  a[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES] = (int32_t)i->local_nbytes;
  a[CU_FUNC_ATTRIBUTE_NUM_REGS] = (int32_t)i->register_count;
  a[CU_FUNC_ATTRIBUTE_PTX_VERSION] = i->ptx_version;
  a[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = i->binary_version;
  a[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] =
      i->shared_nbytes < shared ? (int32_t)(shared - i->shared_nbytes) : 0;
  a[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
  for (int axis = 0; axis < 3; axis++)
    a[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + axis] = (int32_t)i->cluster[axis];
  *made = f;
  return CUDA_SUCCESS;
}

/* Runtime lock held. */
static CUfunction known_function(CUmodule m, const char *name) {
  CUfunction f = m->functions;
  while (f && strcmp(f->name, name) != 0)
    f = f->next;
  return f;
}

CUresult vgx_sim_module_function(CUmodule m, const char *name, CUfunction *function) {
  vgx_sim_lock();
  CUresult result = m->magic == VGX_SIM_MODULE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  CUfunction f = result == CUDA_SUCCESS ? known_function(m, name) : NULL;
  if (result == CUDA_SUCCESS)
    m->pins++;
  vgx_sim_unlock();
  if (result != CUDA_SUCCESS)
    return result;
  if (!f) {
    CUfunction made = NULL;
    result = describe(m, name, &made);
    vgx_sim_lock();
    f = known_function(
        m, name); /* another thread may have been faster: then `made` stays unused, which costs its memory */
    if (!f && made) {
      made->next = m->functions;
      m->functions = f = made;
    }
    vgx_sim_unlock();
  }
  vgx_sim_lock();
  m->pins--;
  vgx_sim_notify_locked();
  vgx_sim_unlock();
  if (f) {
    *function = f;
    return CUDA_SUCCESS;
  }
  return result;
}

CUresult vgx_sim_module_global(CUmodule m, const char *name, CUdeviceptr *address, size_t *nbytes) {
  for (uint32_t i = 0; m->variable_names && i < m->variable_count; i++)
    if (strcmp(m->variable_names[i], name) == 0) {
      if (m->variables[i].space == VGX_SIM_SPACE_MANAGED) /* must have an address that the host can use */
        return CUDA_ERROR_NOT_SUPPORTED;
      if (address)
        *address = m->addresses[i];
      if (nbytes)
        *nbytes = m->variables[i].nbytes;
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_NOT_FOUND;
}

static bool is_module(CUmodule m) { return m && m->magic == VGX_SIM_MODULE; }

CUresult vgx_sim_load_module(CUmodule *module, const void *image, uint64_t nbytes) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  if (!module || !image || nbytes == 0)
    return CUDA_ERROR_INVALID_VALUE;
  return vgx_sim_module_load(ctx, NULL, image, nbytes, module);
}

CUresult vgx_sim_cuModuleUnload(CUmodule hmod) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  vgx_sim_lock();
  result = is_module(hmod) && !hmod->library ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS) {
    hmod->magic = VGX_SIM_DEAD;
    unlink_module(hmod);
  }
  vgx_sim_unlock();
  if (result == CUDA_SUCCESS)
    vgx_sim_module_unload(hmod);
  return result;
}

CUresult vgx_sim_cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  if (!hfunc || !name)
    return CUDA_ERROR_INVALID_VALUE;
  if (!is_module(hmod))
    return CUDA_ERROR_INVALID_HANDLE;
  return vgx_sim_module_function(hmod, name, hfunc);
}

CUresult vgx_sim_cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  if (!name)
    return CUDA_ERROR_INVALID_VALUE;
  return is_module(hmod) ? vgx_sim_module_global(hmod, name, dptr, bytes) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult vgx_sim_cuModuleGetFunctionCount(unsigned int *count, CUmodule mod) {
  if (!count)
    return CUDA_ERROR_INVALID_VALUE;
  if (!is_module(mod))
    return CUDA_ERROR_INVALID_HANDLE;
  *count = mod->kernel_count;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod) {
  char name[VGX_SIM_NAME_NBYTES];
  if (!functions || numFunctions == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (!is_module(mod))
    return CUDA_ERROR_INVALID_HANDLE;
  for (unsigned int i = 0; i < numFunctions && i < mod->kernel_count; i++) {
    CUresult result = vgx_sim_hooks->kernel_name(mod->image, i, name);
    if (result == CUDA_SUCCESS)
      result = vgx_sim_module_function(mod, name, &functions[i]);
    if (result != CUDA_SUCCESS)
      return result;
  }
  return CUDA_SUCCESS;
}

CUresult vgx_sim_link(CUdevice device, const void *const *data, const uint64_t *nbytes, uint32_t count, void **out,
                      uint64_t *out_nbytes) {
  char why[VGX_SIM_WHY_NBYTES] = "";
  if (!vgx_sim_device_at(device))
    return CUDA_ERROR_INVALID_DEVICE;
  if (!vgx_sim_hooks)
    return CUDA_ERROR_NOT_INITIALIZED;
  CUresult result = vgx_sim_hooks->link_images((uint32_t)device, data, nbytes, count, out, out_nbytes, why);
  if (result != CUDA_SUCCESS)
    vgx_sim_reason(result, false, out ? "not linked (%d): %s" : "an input cannot be linked (%d): %s", result, why);
  return result;
}

struct vgx_sim_managed *vgx_sim_managed_find_locked(CUlibrary library, const char *name) {
  struct vgx_sim_managed *v = library->managed;
  while (v && strcmp(v->name, name) != 0)
    v = v->next;
  return v;
}

uint64_t vgx_sim_managed_address(CUlibrary library, const char *name) {
  vgx_sim_lock();
  const struct vgx_sim_managed *v = vgx_sim_managed_find_locked(library, name);
  vgx_sim_unlock();
  return v ? v->address : 0;
}
