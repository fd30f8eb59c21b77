/* cuInit: what is set up before the first session opens. The destructor's part of it, and device output, which is the
 * program's own, are hooks of the session. */
#define _GNU_SOURCE
#include "vgs_apart.h"
#include "vgs_api.h"
#include "vgs_callback.h"
#include "vgs_claim.h"
#include "vgs_copiers.h"
#include "vgs_device.h"
#include "vgs_handle.h"
#include "vgs_host_stack.h"
#include "vgs_launch.h"
#include "vgs_log.h"
#include "vgs_logs.h"
#include "vgs_mirror.h"
#include "vgs_notice.h"
#include "vgs_objects.h"
#include "vgs_range.h"
#include "vgs_reason.h"
#include "vgs_session.h"
#include "vgs_visible.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUTPUT_NBYTES = 1 << 16 };

static void end_threads(void) {
  vgs_callback_fini();
  vgs_copiers_fini();
}

static void free_all(void) {
  vgs_logs_fini();
  vgs_mirror_fini();
  vgs_range_fini();
  vgs_apart_destroy_all();
  vgs_claim_fini();
  vgs_object_fini();
}

/* Kernels' output goes to the program's own stdout, after what the program printed before this call. */
static void take_output(void) {
  static _Thread_local bool taking; /* the fetching call's own reply may announce more */
  if (taking)
    return;
  char *text = malloc(OUTPUT_NBYTES);
  if (!text)
    return;
  taking = true;
  size_t nbytes;
  do {
    memset(text, 0, OUTPUT_NBYTES);
    nbytes = 0;
    if (!vgs_send_vgpuTakeOutput(OUTPUT_NBYTES, text)) {
      nbytes = OUTPUT_NBYTES;
      while (nbytes && !text[nbytes - 1])
        nbytes--;
      fwrite(text, 1, nbytes, stdout);
    }
  } while (nbytes + 8 > OUTPUT_NBYTES); /* the buffer was full: there may be more */
  fflush(stdout);
  taking = false;
  free(text);
}

static void set_hooks(void) {
  vgs_object_set_types(vgs_object_types);
  vgs_launch_configure();
  vgs_session_end_hook = end_threads;
  vgs_session_free_hook = free_all;
  vgs_session_output_hook = take_output;
  vgs_session_reason_hook = vgs_reasons_fetch;
}

/* NVIDIA's driver loads the library that a profiler names in this variable. Nsight's libraries do not work with this
 * libcuda, so the message names what does. */
static void refuse_injection(void) {
  static bool told; /* atomic */
  const char *injected = secure_getenv("CUDA_INJECTION64_PATH");
  if (injected && *injected && strcmp(injected, "none") && !__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
    vgs_log(VGS_LOG_REASON,
            "%s is not loaded: Nsight Systems and Nsight Compute profile a vGPU on the host, as in `nsys profile vgpud "
            "...` (docs/profiling.md); torch.profiler and JAX's profiler work here",
            injected);
}

static CUresult initialize(unsigned int Flags) {
  if (vgs_life_now() == VGS_LIFE_FORKED || vgs_life_now() == VGS_LIFE_ENDED)
    return vgs_life_check();
  if (Flags)
    return CUDA_ERROR_INVALID_VALUE;
  const char *list = getenv("CUDA_VISIBLE_DEVICES");
  if (vgs_visible_is_empty(list)) {
    vgs_log(VGS_LOG_INFO, "CUDA_VISIBLE_DEVICES='%s' shows no device", list);
    return CUDA_ERROR_NO_DEVICE;
  }
  set_hooks();
  refuse_injection();
  vgs_host_stack_begin();
  CUresult result = vgs_session_open();
  if (result)
    return result;
  return vgs_device_select(list) ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult vgs_cuInit(unsigned int Flags) {
  CUresult result = initialize(Flags);
  vgs_notice_after_init(result);
  return result;
}
