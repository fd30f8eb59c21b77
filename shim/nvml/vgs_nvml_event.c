/* Event sets. No device here reports events (nvmlDeviceGetSupportedEventTypes says 0), so a set can only be created,
 * waited on and freed. */
#include "vgs_nvml.h"
#include "vgs_nvml_init.h"
#include <pthread.h>
#include <time.h>

enum { SET_MAX = 64 };

static struct event_set {
  bool used;
} sets[SET_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_set(const void *set) {
  uintptr_t offset = (uintptr_t)set - (uintptr_t)sets;
  return offset < sizeof sets && offset % sizeof *sets == 0 && sets[offset / sizeof *sets].used;
}

nvmlReturn_t vgs_nvmlEventSetCreate(void *set) {
  if (!set)
    return NVML_ERROR_INVALID_ARGUMENT;
  nvmlReturn_t result = NVML_ERROR_INSUFFICIENT_RESOURCES;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < SET_MAX && result; i++)
    if (!sets[i].used) {
      sets[i].used = true;
      *(struct event_set **)set = &sets[i];
      result = NVML_SUCCESS;
    }
  pthread_mutex_unlock(&lock);
  return result;
}

nvmlReturn_t vgs_nvmlEventSetFree(void *set) {
  pthread_mutex_lock(&lock);
  bool known = is_set(set);
  if (known)
    ((struct event_set *)set)->used = false;
  pthread_mutex_unlock(&lock);
  return known ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t vgs_nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, void *set) {
  (void)types;
  pthread_mutex_lock(&lock);
  bool known = is_set(set);
  pthread_mutex_unlock(&lock);
  return known && vgs_nvml_index(device) >= 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
}

/* Sleeps outside enter and leave: another thread's nvmlShutdown must not wait for it. */
nvmlReturn_t vgs_nvmlEventSetWait_v2(void *set, void *data, unsigned int timeout_ms) {
  nvmlReturn_t result = vgs_nvml_enter();
  if (result)
    return result;
  vgs_nvml_leave();
  pthread_mutex_lock(&lock);
  bool known = is_set(set);
  pthread_mutex_unlock(&lock);
  if (!known || !data)
    return NVML_ERROR_INVALID_ARGUMENT;
  struct timespec left = {.tv_sec = timeout_ms / 1000, .tv_nsec = (long)(timeout_ms % 1000) * 1000000};
  while (nanosleep(&left, &left))
    ;
  return NVML_ERROR_TIMEOUT;
}
