/* Each thread's last error, and the errors' names. */
#include "vgs_rt_error.h"
#include "vgs_error_text.h"
#include "vgs_log.h"
#include "vgs_rt_api.h"
#include "vgs_rt_tables.h"

static _Thread_local int last_error;

/* "Not ready" is an answer: NVIDIA's runtime (13.0) does not keep it as the last error. */
int vgs_rt_leave(const char *name, int result) {
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
    last_error = result;
  if (vgs_trace_on())
    vgs_log(VGS_LOG_TRACE, "%s() = %d", name, result);
  return result;
}

/* The error of a context that a kernel's fault has destroyed is kept by the driver: every later call returns it again.
 */
int vgs_cudaGetLastError(void) {
  int error = last_error;
  last_error = CUDA_SUCCESS;
  return error;
}

int vgs_cudaPeekAtLastError(void) { return last_error; }

static const struct vgs_rt_error_entry *find(int code) {
  for (size_t i = 0; i < vgs_rt_error_count; i++)
    if (vgs_rt_errors[i].code == code)
      return &vgs_rt_errors[i];
  return NULL;
}

const char *vgs_cudaGetErrorName(int error) {
  const struct vgs_rt_error_entry *entry = find(error);
  return entry ? entry->name : "unrecognized error code";
}

const char *vgs_cudaGetErrorString(int error) {
  const struct vgs_rt_error_entry *entry = find(error);
  const char *text = entry && !entry->text ? vgs_error_text(error) : entry ? entry->text : NULL;
  return text ? text : "unrecognized error code";
}
