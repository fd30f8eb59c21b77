#include "vgs_cupti_observe.h"
#include "vgs_cupti_buffer.h"
#include "vgs_cupti_call.h"
#include "vgs_cupti_callback.h"
#include "vgs_cupti_clock.h"
#include "vgs_cupti_device.h"
#include "vgs_cupti_event.h"
#include "vgs_cupti_memory.h"
#include "vgs_cupti_result.h"
#include "vgs_cupti_state.h"
#include "vgs_log.h"

static pthread_mutex_t updating = PTHREAD_MUTEX_INITIALIZER;
static bool observing, fork_handled; /* under `updating` */

/* The child has none of the parent's records, and another thread of the parent may have held a lock. The parent's
 * allocations are not freed in the child. */
static void forked(void) {
  static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
  updating = unlocked;
  vgs_cupti_reset_wants();
  if (observing)
    vgs_cupti_driver()->observe(NULL, &vgs_cupti_observer);
  observing = false;
  vgs_cupti_reset_calls();
  vgs_cupti_reset_events();
  vgs_cupti_reset_memory();
  vgs_cupti_reset_buffers();
  vgs_cupti_reset_subscriber();
}

static int begin(const struct vgs_profiling *driver) {
  if (!fork_handled && pthread_atfork(NULL, NULL, forked))
    return CUPTI_ERROR_OUT_OF_MEMORY;
  fork_handled = true;
  vgs_cupti_clock_start();
  if (driver->observe(&vgs_cupti_observer, NULL))
    return CUPTI_SUCCESS;
  vgs_log(VGS_LOG_REASON, "another profiler of this process uses CUPTI already, of another major version");
  return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
}

int vgs_cupti_update(void) {
  const struct vgs_profiling *driver = vgs_cupti_driver();
  if (!driver)
    return CUPTI_ERROR_NOT_INITIALIZED;
  int result = CUPTI_SUCCESS;
  pthread_mutex_lock(&updating);
  bool wanted = vgs_cupti_wants_any() || vgs_cupti_wants_callbacks();
  if (wanted && !observing)
    result = begin(driver);
  else if (!wanted && observing)
    driver->observe(NULL, &vgs_cupti_observer);
  if (!result)
    observing = wanted;
  pthread_mutex_unlock(&updating);
  return result;
}
