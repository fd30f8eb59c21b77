#include "vgs_cupti_result.h"
#include "vgs_cupti_api.h"
#include "vgs_cupti_tables.h"
#include "vgs_log.h"

static _Thread_local int last;

int vgs_cupti_remember(int result) {
  if (result != CUPTI_SUCCESS)
    last = result;
  return result;
}

int vgs_cupti_unsupported(const char *name, bool *named) {
  if (!__atomic_exchange_n(named, true, __ATOMIC_RELAXED))
    vgs_log(VGS_LOG_REASON, "%s is not implemented: CUPTI_ERROR_NOT_SUPPORTED", name);
  return vgs_cupti_remember(CUPTI_ERROR_NOT_SUPPORTED);
}

int vgs_cuptiGetLastError(void) {
  int result = last;
  last = CUPTI_SUCCESS;
  return result;
}

int vgs_cuptiGetResultString(int result, const char **str) {
  if (!str)
    return CUPTI_ERROR_INVALID_PARAMETER;
  for (size_t i = 0; i < vgs_cupti_result_count; i++)
    if (vgs_cupti_results[i].result == result) {
      *str = vgs_cupti_results[i].name;
      return CUPTI_SUCCESS;
    }
  return CUPTI_ERROR_INVALID_PARAMETER;
}

int vgs_cuptiGetErrorMessage(int result, const char **str) { return vgs_cuptiGetResultString(result, str); }
