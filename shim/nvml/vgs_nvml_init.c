/* Counted initialisation, the devices' handles, fork and exit. */
#include "vgs_nvml_init.h"
#include "vgs_log.h"
#include "vgs_nvml_session.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct nvmlDevice_st {
  char unused;
};
static struct nvmlDevice_st handles[VGS_DEVICE_MAX];

static struct {
  pthread_rwlock_t life; /* read: a call is inside; write: initialising, shutting down */
  pthread_mutex_t wire;  /* one question at a time; guards session.fd while `life` is held for reading */
  unsigned count;        /* of nvmlInit calls not yet undone */
  struct vgs_nvml_session session;
  bool fork_handled;
} state = {.life = PTHREAD_RWLOCK_INITIALIZER, .wire = PTHREAD_MUTEX_INITIALIZER, .session = {.fd = -1}};

/* The child shares the parent's connection and has none of its threads: it drops its copy and starts uninitialised. */
static void forked(void) {
  static const pthread_rwlock_t life = PTHREAD_RWLOCK_INITIALIZER;
  static const pthread_mutex_t wire = PTHREAD_MUTEX_INITIALIZER;
  state.life = life;
  state.wire = wire;
  if (state.session.fd >= 0)
    close(state.session.fd);
  state.session.fd = -1;
  state.count = 0; /* the next nvmlInit frees the memory of the parent's session */
}

nvmlReturn_t vgs_nvmlInitWithFlags(unsigned int flags) {
  (void)flags; /* these flags skip work of NVIDIA's library that this one never does */
  int saved = errno;
  nvmlReturn_t result = NVML_SUCCESS;
  pthread_rwlock_wrlock(&state.life);
  if (!state.fork_handled) {
    if (pthread_atfork(NULL, NULL, forked))
      result = NVML_ERROR_MEMORY;
    else
      state.fork_handled = true;
  }
  if (!result && !state.count) {
    vgs_nvml_session_close(&state.session);
    result = vgs_nvml_session_open(&state.session);
  }
  if (!result)
    state.count++;
  pthread_rwlock_unlock(&state.life);
  errno = saved;
  return result;
}

nvmlReturn_t vgs_nvmlInit_v2(void) { return vgs_nvmlInitWithFlags(0); }

nvmlReturn_t vgs_nvmlShutdown(void) {
  nvmlReturn_t result = NVML_SUCCESS;
  pthread_rwlock_wrlock(&state.life);
  if (!state.count)
    result = NVML_ERROR_UNINITIALIZED;
  else if (!--state.count)
    vgs_nvml_session_close(&state.session);
  pthread_rwlock_unlock(&state.life);
  return result;
}

nvmlReturn_t vgs_nvml_enter(void) {
  pthread_rwlock_rdlock(&state.life);
  if (state.count)
    return NVML_SUCCESS;
  pthread_rwlock_unlock(&state.life);
  return NVML_ERROR_UNINITIALIZED;
}

void vgs_nvml_leave(void) { pthread_rwlock_unlock(&state.life); }

/* vgpud was restarted: go on with the new one if it shows the same devices. Called with `wire` held. */
static bool reconnect(void) {
  struct vgs_nvml_session fresh;
  const struct vgs_inventory *before = &state.session.inventory;
  if (vgs_nvml_session_open(&fresh))
    return false;
  bool same = before->device_count == fresh.inventory.device_count;
  for (uint32_t i = 0; same && i < before->device_count; i++)
    same = !memcmp(before->devices[i].uuid, fresh.inventory.devices[i].uuid, sizeof before->devices[i].uuid);
  if (same) {
    state.session.fd = fresh.fd; /* the old snapshot stays: other threads are reading it */
    fresh.fd = -1;
    vgs_log(VGS_LOG_INFO, "connected to the daemon again");
  } else
    vgs_log(VGS_LOG_ERROR, "the daemon came back with other devices: call nvmlShutdown and nvmlInit");
  vgs_nvml_session_close(&fresh);
  return same;
}

nvmlReturn_t vgs_nvml_known(const struct vgs_nvml_question *question) {
  const struct vgs_nvml_entry *entry = vgs_nvml_session_find(&state.session, question);
  return entry ? entry->result : NVML_SUCCESS;
}

void vgs_nvml_ask(const struct vgs_nvml_question *question, struct vgs_nvml_reply *reply) {
  const struct vgs_nvml_entry *entry = vgs_nvml_session_find(&state.session, question);
  if (entry) {
    struct vgs_unpacker value = {.next = entry->value, .end = entry->value + entry->value_nbytes};
    *reply = (struct vgs_nvml_reply){.result = entry->result, .value = value};
    return;
  }
  int saved = errno;
  pthread_mutex_lock(&state.wire);
  if (!vgs_nvml_session_ask(&state.session, question, reply) &&
      !(reconnect() && vgs_nvml_session_ask(&state.session, question, reply)))
    *reply = (struct vgs_nvml_reply){.result = NVML_ERROR_GPU_IS_LOST};
  pthread_mutex_unlock(&state.wire);
  errno = saved;
}

void vgs_nvml_reply_fini(struct vgs_nvml_reply *reply) { free(reply->body); }

uint32_t vgs_nvml_device_count(void) { return state.session.inventory.device_count; }
const struct vgs_device *vgs_nvml_device(uint32_t index) { return &state.session.inventory.devices[index]; }
nvmlDevice_t vgs_nvml_handle(uint32_t index) { return &handles[index]; }

int vgs_nvml_index(nvmlDevice_t handle) {
  uintptr_t offset = (uintptr_t)handle - (uintptr_t)handles;
  return offset / sizeof *handles < vgs_nvml_device_count() ? (int)(offset / sizeof *handles) : -1;
}

/* At exit or dlclose: nothing is sent, nothing is waited for. A thread that is inside a call keeps its memory. */
__attribute__((destructor)) static void end(void) {
  if (pthread_rwlock_trywrlock(&state.life))
    return;
  vgs_nvml_session_close(&state.session);
  state.count = 0;
  pthread_rwlock_unlock(&state.life);
  vgs_log_fini();
}
