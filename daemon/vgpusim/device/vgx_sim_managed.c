/* Managed variables of libraries: the client maps memory for one at its own address, where kernels use it in place.
 *
 * Locking: the runtime lock for the list. */
#include <stdlib.h>
#include <string.h>

#include "vgx_sim_module.h"
#include "vgx_sim_runtime.h"

/* Index of a module's managed variable; NOT_FOUND. */
static CUresult index_of(CUmodule m, const char *name, uint32_t *index) {
  for (uint32_t i = 0; m->variable_names && i < m->variable_count; i++)
    if (m->variables[i].space == VGX_SIM_SPACE_MANAGED && strcmp(m->variable_names[i], name) == 0) {
      *index = i;
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_NOT_FOUND;
}

/* Whether a kernel has been compiled against the variable's old address. */
static bool is_used_locked(CUlibrary library) {
  for (CUmodule m = library->modules; m; m = m->library_next)
    for (CUfunction f = m->functions; f; f = f->next)
      if (f->variants)
        return true;
  return false;
}

/* Store the variable's address for all contexts. Takes ownership of `made` on success. */
static CUresult place_locked(CUlibrary library, const char *name, struct vgx_sim_managed *made) {
  uint32_t i;
  if (vgx_sim_managed_find_locked(library, name))
    return CUDA_ERROR_INVALID_VALUE;
  if (is_used_locked(library))
    return CUDA_ERROR_NOT_SUPPORTED;
  for (CUmodule m = library->modules; m; m = m->library_next)
    if (index_of(m, name, &i) == CUDA_SUCCESS)
      m->addresses[i] = made->address;
  made->next = library->managed;
  library->managed = made;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_managed_variable(CUlibrary library, const char *name, uint64_t address, uint64_t *placed,
                                  uint64_t *nbytes) {
  CUmodule m;
  uint32_t i;
  CUresult result = vgx_sim_cuLibraryGetModule(&m, library);
  if (result == CUDA_SUCCESS)
    result = index_of(m, name, &i);
  if (result != CUDA_SUCCESS)
    return result;
  if (address) {
    size_t room = strlen(name) + 1;
    struct vgx_sim_managed *made = calloc(1, sizeof *made + room);
    if (!made)
      return CUDA_ERROR_OUT_OF_MEMORY;
    made->address = address;
    memcpy(made->name, name, room);
    result = vgx_sim_hooks->initial_bytes(m->image, i, m->addresses, (uint8_t *)address);
    if (result == CUDA_SUCCESS) {
      vgx_sim_lock();
      result = place_locked(library, name, made);
      vgx_sim_unlock();
    }
    if (result != CUDA_SUCCESS) {
      free(made);
      return result;
    }
  }
  *placed = vgx_sim_managed_address(library, name);
  *nbytes = m->variables[i].nbytes;
  return CUDA_SUCCESS;
}
