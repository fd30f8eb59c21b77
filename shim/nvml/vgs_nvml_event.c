/* Event sets. vgpud keeps the events of its devices, numbered; a set remembers which types it waits for on which
 * device, and after which event. A simulated device has none. */
#include "vgs_inventory.h"
#include "vgs_nvml_answer.h"
#include "vgs_nvml_init.h"
#include <pthread.h>
#include <string.h>
#include <time.h>

enum { SET_MAX = 64, EVENT_MAX = 64, POLL_MS = 100, MS_NS = 1000000 };

static struct event_set {
  bool used;
  uint64_t after; /* the number of the last event that was delivered, or that was there when types were registered */
  uint64_t types[VGS_DEVICE_MAX];
} sets[SET_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held for no question */

/* nvmlEventData_t of release 580 */
struct event_data {
  nvmlDevice_t device;
  unsigned long long type, data;
  unsigned int gpu_instance, compute_instance;
};

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
      sets[i] = (struct event_set){.used = true};
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

/* The events after number `after`, or their last number alone where `events` is NULL. */
static nvmlReturn_t ask(uint64_t after, unsigned long long *last, vgpuDeviceEvent_t *events, uint32_t *count) {
  uint64_t words[] = {after, (uintptr_t)last, (uintptr_t)count, (uintptr_t)events};
  return vgs_nvml_answer(VGS_ASK_nvmlEventSetWait_v2, words);
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types); /* generated */

/* Any of the types that the device reports may be registered, none as well: a mask that a program has reduced to what
 * is supported is never an error. */
nvmlReturn_t vgs_nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, void *set) {
  unsigned long long supported = 0, last = 0;
  uint32_t count = 0;
  int index = vgs_nvml_index(device);
  pthread_mutex_lock(&lock);
  bool known = is_set(set), first = true;
  for (uint32_t i = 0; known && i < VGS_DEVICE_MAX; i++)
    first = first && !((struct event_set *)set)->types[i];
  pthread_mutex_unlock(&lock);
  if (!known || index < 0)
    return NVML_ERROR_INVALID_ARGUMENT;
  nvmlReturn_t result = nvmlDeviceGetSupportedEventTypes(device, &supported);
  if (result)
    return result;
  if (types & ~supported)
    return NVML_ERROR_NOT_SUPPORTED;
  if (first) {
    result = ask(UINT64_MAX, &last, NULL, &count);
    if (result && result != NVML_ERROR_NOT_SUPPORTED)
      return result;
  }
  pthread_mutex_lock(&lock);
  if (is_set(set)) {
    struct event_set *into = set;
    if (first)
      into->after = last;
    into->types[index] |= types;
  }
  pthread_mutex_unlock(&lock);
  return NVML_SUCCESS;
}

/* Take the first event of the set's types. TIMEOUT: none has come; NOT_SUPPORTED: none will come. */
static nvmlReturn_t take(struct event_set *set, struct event_data *data) {
  vgpuDeviceEvent_t events[EVENT_MAX];
  unsigned long long last;
  uint32_t count = EVENT_MAX;
  pthread_mutex_lock(&lock);
  uint64_t after = set->after;
  pthread_mutex_unlock(&lock);
  nvmlReturn_t result = ask(after, &last, events, &count);
  if (result)
    return result;
  result = NVML_ERROR_TIMEOUT;
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < count && result; i++) {
    const vgpuDeviceEvent_t *event = &events[i];
    if (event->sequence <= set->after) /* another thread that waits has taken it */
      continue;
    set->after = event->sequence;
    if (event->device >= vgs_nvml_device_count() || !(set->types[event->device] & event->eventType))
      continue;
    *data = (struct event_data){.device = vgs_nvml_handle(event->device),
                                .type = event->eventType,
                                .data = event->eventData,
                                .gpu_instance = event->gpuInstanceId,
                                .compute_instance = event->computeInstanceId};
    result = NVML_SUCCESS;
  }
  if (result && last > set->after)
    set->after = last;
  pthread_mutex_unlock(&lock);
  return result;
}

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / MS_NS;
}

static void sleep_ms(int64_t ms) {
  struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * MS_NS};
  while (nanosleep(&left, &left))
    ;
}

/* The older function's struct ends before the instances. */
nvmlReturn_t vgs_nvmlEventSetWait(void *set, void *data, unsigned int timeout_ms) {
  struct event_data event;
  nvmlReturn_t result = vgs_nvmlEventSetWait_v2(set, data ? &event : NULL, timeout_ms);
  if (!result)
    memcpy(data, &event, offsetof(struct event_data, gpu_instance));
  return result;
}

/* Sleeps outside enter and leave: another thread's nvmlShutdown must not wait for it. */
nvmlReturn_t vgs_nvmlEventSetWait_v2(void *set, void *data, unsigned int timeout_ms) {
  int64_t end = now_ms() + timeout_ms;
  for (;;) {
    nvmlReturn_t result = vgs_nvml_enter();
    if (result)
      return result;
    pthread_mutex_lock(&lock);
    bool known = is_set(set);
    pthread_mutex_unlock(&lock);
    result = known && data ? take(set, data) : NVML_ERROR_INVALID_ARGUMENT;
    vgs_nvml_leave();
    int64_t left = end - now_ms();
    if (result == NVML_ERROR_NOT_SUPPORTED && left > 0)
      sleep_ms(left);
    if (result == NVML_ERROR_NOT_SUPPORTED || (result == NVML_ERROR_TIMEOUT && left <= 0))
      return NVML_ERROR_TIMEOUT;
    if (result != NVML_ERROR_TIMEOUT)
      return result;
    sleep_ms(left < POLL_MS ? left : POLL_MS);
  }
}
