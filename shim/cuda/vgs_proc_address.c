/* cuGetProcAddress: the table says which ABI each API version means; a program must never be given a newer one than it
 * asked for. */
#include "vgs_api.h"
#include "vgs_device.h"
#include "vgs_proc_table.h"
#include <string.h>

enum { FLAG_LEGACY = 1, FLAG_PER_THREAD = 2 };
enum { STATUS_FOUND = 0, STATUS_NOT_FOUND = 1, STATUS_VERSION_TOO_LOW = 2 };

/* The entry of a base name, or NULL. The table is sorted by name, then flag. */
static const struct vgs_proc_entry *find_entry(const char *name, int flag) {
  size_t low = 0, high = vgs_proc_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    const struct vgs_proc_entry *entry = &vgs_proc_table[middle];
    int order = strcmp(entry->base, name);
    if (!order)
      order = entry->flag - flag;
    if (!order)
      return entry;
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return NULL;
}

static CUresult resolve(const char *symbol, void **pfn, int version, uint64_t flags, int *status) {
  int newest;
  CUresult result = vgs_cuDriverGetVersion(&newest);
  if (result)
    return result;
  if (!symbol || !pfn || flags > FLAG_PER_THREAD || version > newest)
    return CUDA_ERROR_INVALID_VALUE;
  const struct vgs_proc_entry *entry = find_entry(symbol, flags == FLAG_PER_THREAD ? FLAG_PER_THREAD : 0);
  void (*function)(void) = NULL;
  for (int i = 0; entry && i < entry->step_count && entry->steps[i].version <= version; i++)
    function = entry->steps[i].function;
  *status = function ? STATUS_FOUND : entry ? STATUS_VERSION_TOO_LOW : STATUS_NOT_FOUND;
  *pfn = (void *)function;
  return CUDA_SUCCESS;
}

/* The first form cannot say why it found nothing, so that is an error. */
CUresult vgs_cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, uint64_t flags) {
  int status;
  void *found;
  if (!pfn)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = resolve(symbol, &found, cudaVersion, flags, &status);
  if (result)
    return result;
  *pfn = found;
  return status == STATUS_FOUND ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* The second form returns success, NULL and a status, even if the caller passes no status (as an H100 under 580 does).
 */
CUresult vgs_cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, uint64_t flags, int *symbolStatus) {
  int status;
  CUresult result = resolve(symbol, pfn, cudaVersion, flags, &status);
  if (result)
    return result;
  if (symbolStatus)
    *symbolStatus = status;
  return CUDA_SUCCESS;
}
