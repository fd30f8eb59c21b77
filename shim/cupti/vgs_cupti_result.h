/* CUptiResult, and how functions answer. */
#ifndef VGS_CUPTI_RESULT_H
#define VGS_CUPTI_RESULT_H

#include <stdbool.h>

enum vgs_cupti_result {
  CUPTI_SUCCESS = 0,
  CUPTI_ERROR_INVALID_PARAMETER = 1,
  CUPTI_ERROR_INVALID_CONTEXT = 3,
  CUPTI_ERROR_INVALID_OPERATION = 7,
  CUPTI_ERROR_OUT_OF_MEMORY = 8,
  CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT = 10,
  CUPTI_ERROR_MAX_LIMIT_REACHED = 12,
  CUPTI_ERROR_NOT_INITIALIZED = 15,
  CUPTI_ERROR_QUEUE_EMPTY = 18,
  CUPTI_ERROR_INVALID_STREAM = 20,
  CUPTI_ERROR_INVALID_KIND = 21,
  CUPTI_ERROR_NOT_SUPPORTED = 27,
  CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39,
  CUPTI_ERROR_UNKNOWN = 999,
};

/* Set the calling thread's result of cuptiGetLastError; returns `result`. */
int vgs_cupti_remember(int result);

/* Returns NOT_SUPPORTED; logs the name the first time. `named`: a flag that the caller keeps, initially false. */
int vgs_cupti_unsupported(const char *name, bool *named);

#endif
