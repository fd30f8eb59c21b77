#include "vgs_api.h"
#include "vgs_error_text.h"
#include "vgs_proc_table.h"

static const struct vgs_error_name *find(int error) {
  size_t low = 0, high = vgs_error_name_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (vgs_error_names[middle].code < error)
      low = middle + 1;
    else
      high = middle;
  }
  return low < vgs_error_name_count && vgs_error_names[low].code == error ? &vgs_error_names[low] : NULL;
}

CUresult vgs_cuGetErrorName(int error, const char **pStr) {
  const struct vgs_error_name *found = find(error);
  if (!pStr)
    return CUDA_ERROR_INVALID_VALUE;
  *pStr = found ? found->name : NULL; /* NULL for an unknown code, as documented */
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vgs_cuGetErrorString(int error, const char **pStr) {
  if (!pStr)
    return CUDA_ERROR_INVALID_VALUE;
  *pStr = find(error) ? vgs_error_text(error) : NULL;
  return *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
