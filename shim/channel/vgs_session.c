#define _GNU_SOURCE
/* Opening, attaching, losing, ending; and which way a call takes, in a ring or on the socket. */
#include "vgs_session.h"
#include "vgs_hello.h"
#include "vgs_log.h"
#include "vgs_order.h"
#include "vgs_record_stream.h"
#include "vgs_region.h"
#include "vgs_ring_set.h"
#include "vgs_socket.h"
#include "vgw_wire.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire is little-endian and records are sent as they lie in memory"
#endif

enum { DRAIN_TIMEOUT_MS = 1000 };

int vgs_life = VGS_LIFE_NEW;
void (*vgs_session_output_hook)(void);
void (*vgs_session_reason_hook)(void);
void (*vgs_session_end_hook)(void);
void (*vgs_session_free_hook)(void);

static struct {
  pthread_mutex_t lock; /* opening, attaching and reopening, one at a time */
  struct vgs_welcome welcome;
  int fault; /* atomic; CUresult */
  bool fork_handled;
  bool sync; /* VGPU_SYNC=1: every call waits */
} session = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The child has a copy of the connection and none of the threads that use it: it must send nothing and take no
 * lock. */
static void forked(void) {
  static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
  session.lock = unlocked; /* another thread of the parent may have held it */
  if (vgs_life_is_open())
    __atomic_store_n(&vgs_life, VGS_LIFE_FORKED, __ATOMIC_RELEASE); /* the child has one thread */
  vgs_ring_abandon();
  vgs_stream_abandon();
}

CUresult vgs_life_error(void) {
  switch (vgs_life_now()) {
  case VGS_LIFE_READY:
  case VGS_LIFE_LOST:
    return CUDA_SUCCESS;
  case VGS_LIFE_ENDED:
    return CUDA_ERROR_DEINITIALIZED;
  default:
    return CUDA_ERROR_NOT_INITIALIZED;
  }
}

/* Called before the stream's sticky error is set, so that whoever sees the error sees LOST, too; and after it. */
static void lose(void) {
  int was = VGS_LIFE_READY;
  __atomic_compare_exchange_n(&vgs_life, &was, VGS_LIFE_LOST, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Connect and say hello; on success the stream owns the connection. */
static CUresult connect_and_greet(struct vgs_welcome *welcome) {
  struct vgs_endpoint endpoint;
  CUresult result = vgs_endpoint_find(&endpoint);
  if (result)
    return result;
  if (!session.fork_handled) {
    if (pthread_atfork(NULL, NULL, forked))
      return CUDA_ERROR_OUT_OF_MEMORY;
    session.fork_handled = true;
  }
  int fd = vgs_endpoint_connect(&endpoint);
  if (fd < 0)
    return CUDA_ERROR_SYSTEM_NOT_READY;
  /* Only the host of a virtual machine shares memory with it. So devices are searched only if the endpoint is such a
   * host, or the configuration names one. */
  bool look = *endpoint.region || endpoint.address.ss_family == AF_VSOCK || endpoint.hybrid_port;
  result = vgs_hello(fd, &endpoint, "libcuda", look && vgs_region_look(endpoint.region), welcome);
  if (result) {
    close(fd);
    return result;
  }
  vgs_log(VGS_LOG_INFO, "connected to %s: %u device(s), epoch %u", endpoint.text, welcome->inventory.device_count,
          welcome->epoch);
  if (!welcome->region)
    vgs_region_end(); /* the host does not use the memory that was found */
  const char *sync = secure_getenv("VGPU_SYNC");
  session.sync = sync && !strcmp(sync, "1");
  vgs_ring_start(welcome->ring);
  vgs_stream_start(fd, welcome->record_nbytes, lose);
  return CUDA_SUCCESS;
}

CUresult vgs_session_open(void) {
  if (vgs_life_now() != VGS_LIFE_NEW)
    return vgs_life_check();
  int saved = errno;
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&session.lock);
  if (vgs_life_now() == VGS_LIFE_NEW && !(result = connect_and_greet(&session.welcome)))
    __atomic_store_n(&vgs_life, VGS_LIFE_READY, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&session.lock);
  errno = saved;
  return result;
}

/* Ask for a worker, and for a share of the memory that is shared with its host, if any is. */
static CUresult attach(int fd) {
  struct vgs_attached attached;
  bool region =
      session.welcome.region && vgs_region_recognise(session.welcome.region_cookie, session.welcome.region_nbytes);
  CUresult result = vgs_attach(fd, region, &attached);
  if (!result && region && !attached.region)
    vgs_log(VGS_LOG_INFO, "no memory shared with the host: vgpud has no range left; calls travel on the socket");
  if (!result && region && attached.region && vgs_region_map(attached.offset, attached.nbytes))
    vgs_ring_use_region();
  return result;
}

CUresult vgs_session_attach(void) {
  CUresult result = vgs_life_check();
  if (result)
    return result;
  int saved = errno;
  pthread_mutex_lock(&session.lock);
  result = vgs_stream_error();
  if (!result && !vgs_stream_attached()) {
    result = attach(vgs_stream_fd());
    if (!result)
      vgs_stream_set_attached();
    else
      vgs_stream_fail(result, "no worker for this session");
  }
  pthread_mutex_unlock(&session.lock);
  errno = saved;
  return result;
}

/* The program goes on using the devices that it knows: after a loss the daemon must show the same ones. */
static bool same_devices(const struct vgs_inventory *before, const struct vgs_inventory *now) {
  if (before->device_count != now->device_count)
    return false;
  for (uint32_t i = 0; i < before->device_count; i++)
    if (memcmp(before->devices[i].uuid, now->devices[i].uuid, sizeof now->devices[i].uuid))
      return false;
  return true;
}

/* Wait (1 s at most) until no thread is inside a call of a failed or shut-down session, then close the connection.
 * False: one still is; nothing was closed. */
static bool end_calls(void) {
  int64_t deadline_ms = vgs_now_ms() + DRAIN_TIMEOUT_MS;
  while (vgs_stream_is_used() || !vgs_ring_end()) {
    if (vgs_now_ms() > deadline_ms)
      return false;
    poll(NULL, 0, 1);
  }
  vgs_touch_clear();
  vgs_stream_close();
  return true;
}

CUresult vgs_session_reopen(void) {
  CUresult result = vgs_life_check();
  if (result)
    return result;
  int saved = errno;
  struct vgs_welcome fresh;
  pthread_mutex_lock(&session.lock);
  if (vgs_stream_error()) {
    end_calls();
    result = connect_and_greet(&fresh);
    if (!result && !same_devices(&session.welcome.inventory, &fresh.inventory)) {
      vgs_stream_fail(CUDA_ERROR_DEVICE_UNAVAILABLE, "the daemon came back with other devices");
      vgs_inventory_fini(&fresh.inventory);
      result = CUDA_ERROR_DEVICE_UNAVAILABLE;
    } else if (!result) {
      vgs_inventory_fini(&fresh.inventory); /* the first inventory is kept: pointers into it are in use */
      session.welcome.epoch = fresh.epoch;
      session.welcome.record_nbytes = fresh.record_nbytes;
      session.welcome.pinned_fd = fresh.pinned_fd;
      session.welcome.region = fresh.region;
      session.welcome.region_nbytes = fresh.region_nbytes;
      memcpy(session.welcome.region_cookie, fresh.region_cookie, sizeof fresh.region_cookie);
      session.welcome.images = fresh.images;
      session.welcome.activity = fresh.activity;
      session.welcome.limited = fresh.limited;
      __atomic_store_n(&session.fault, 0, __ATOMIC_RELEASE);
      int was = VGS_LIFE_LOST;
      __atomic_compare_exchange_n(&vgs_life, &was, VGS_LIFE_READY, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
      if (vgs_stream_error())
        lose();
    }
  }
  pthread_mutex_unlock(&session.lock);
  errno = saved;
  return result;
}

void vgs_session_set_fault(CUresult fault, bool explained) {
  int none = 0;
  if (__atomic_compare_exchange_n(&session.fault, &none, fault, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    vgs_log(explained ? VGS_LOG_ERROR : VGS_LOG_REASON,
            "a kernel faulted: every call that needs a context returns %d from now on; "
            "with CUDA_LAUNCH_BLOCKING=1 its launch does",
            fault);
}

CUresult vgs_session_fault(void) { return __atomic_load_n(&session.fault, __ATOMIC_ACQUIRE); }
CUresult vgs_session_error(void) { return vgs_life_now() == VGS_LIFE_LOST ? vgs_stream_error() : CUDA_SUCCESS; }
const struct vgs_inventory *vgs_inventory(void) { return &session.welcome.inventory; }
uint16_t vgs_session_epoch(void) { return session.welcome.epoch; }
bool vgs_session_shares_memory(void) { return session.welcome.pinned_fd || session.welcome.region; }
bool vgs_session_has_pinned_fd(void) { return session.welcome.pinned_fd; }
bool vgs_session_has_activity(void) { return session.welcome.activity; }
bool vgs_session_is_limited(void) { return session.welcome.limited; }
bool vgs_session_has_images(void) { return session.welcome.images; }

/* --- calls --- */

static void note_way(bool wait) {
  if (vgs_way < VGS_WAY_WAITED)
    vgs_way = wait ? VGS_WAY_WAITED : VGS_WAY_QUEUED;
}

/* While no thread has a ring, calls travel on the socket: record there, too, what may still be running. */
static void note_sent(const struct vgs_call *call, bool waits) {
  bool leaves_work = !call->on_socket && (!waits || (call->touched_count && !call->settled));
  if (leaves_work && !vgs_ring_any())
    vgs_order_mark_socket(call);
}

/* Holds a reference, so that the socket is not closed meanwhile. */
static CUresult count_on_socket(struct vgs_call *call, bool wait, uint16_t *notices) {
  vgs_stream_ref();
  CUresult result = vgs_stream_error();
  /* Other threads have rings and none was free for this one: its calls wait for their replies. */
  if (!result && !call->on_socket && vgs_ring_any()) {
    wait = true;
    result = vgs_order_fence_socket(call);
  }
  if (!result)
    result = vgs_stream_call(call, wait, note_sent, notices);
  vgs_stream_unref();
  return result;
}

static CUresult call_inside(struct vgs_call *call, uint16_t *notices) {
  CUresult result = vgs_session_error();
  if (result)
    return result;
  if (call->part_count > 4)
    return CUDA_ERROR_INVALID_VALUE;
  struct vgs_ring *ring = vgs_ring_own();
  if (!ring && !vgs_stream_attached() && (result = vgs_session_attach()))
    return result;
  bool wait = call->wait || session.sync;
  if (vgs_trace_state)
    note_way(wait);
  /* Calls about the channel itself, and those that pass a descriptor, use the socket: they depend on no queued call. */
  if (!call->on_socket && (ring || (ring = vgs_ring_ready())))
    return vgs_order_call(ring, call, wait, notices);
  return count_on_socket(call, wait, notices);
}

/* Faults that poison the process's contexts: the driver repeats them for every later call (oracle: life after 700 and
 * 719). */
static bool is_sticky(CUresult result) {
  return result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_LAUNCH_TIMEOUT || result == CUDA_ERROR_ASSERT ||
         (result >= 714 && result <= CUDA_ERROR_LAUNCH_FAILED);
}

/* After the reply. A call about the channel runs inside another call: a notice is repeated by the next reply. */
static CUresult act_on_reply(const struct vgs_call *call, CUresult result, uint16_t notices) {
  if (notices & VGW_OUTPUT_PENDING && !call->on_socket && vgs_session_output_hook)
    vgs_session_output_hook();
  if (notices & VGW_REASON_PENDING && !call->on_socket && vgs_session_reason_hook)
    vgs_session_reason_hook();
  if (is_sticky(result))
    vgs_session_set_fault(result, false);
  return result;
}

CUresult vgs_session_call(struct vgs_call *call) {
  CUresult result = vgs_life_check();
  if (result)
    return result;
  int saved = errno;
  uint16_t notices = 0;
  result = call_inside(call, &notices); /* before act_on_reply() is given what it stores */
  result = act_on_reply(call, result, notices);
  errno = saved;
  return result;
}

/* All on the socket; the session has no rings. */
static CUresult call_all_inside(struct vgs_call *calls, uint32_t count, uint16_t *notices) {
  CUresult result = vgs_session_error();
  if (result)
    return result;
  if (vgs_trace_state)
    note_way(true);
  vgs_stream_ref();
  result = vgs_stream_error();
  if (!result)
    result = vgs_stream_call_all(calls, count, note_sent, notices);
  vgs_stream_unref();
  return result;
}

CUresult vgs_session_call_all(struct vgs_call *calls, uint32_t count) {
  CUresult result = vgs_life_check();
  if (result)
    return result;
  if (vgs_session_shares_memory() || !vgs_stream_attached() || session.sync) {
    for (uint32_t i = 0; i < count && !result; i++)
      result = vgs_session_call(&calls[i]);
    return result;
  }
  int saved = errno;
  uint16_t notices = 0;
  result = call_all_inside(calls, count, &notices);
  result = act_on_reply(&calls[0], result, notices);
  errno = saved;
  return result;
}

void *vgs_record_begin(struct vgs_record *record, uint16_t opcode, uint32_t stream, uint64_t nbytes) {
  if (vgs_life_now() != VGS_LIFE_READY || session.sync || vgs_trace_state)
    return NULL;
  return vgs_order_begin(record, opcode, stream, nbytes);
}

CUresult vgs_record_send(struct vgs_record *record) { return vgs_order_send(record); }
void vgs_record_cancel(struct vgs_record *record) { vgs_order_cancel(record); }

/* --- the end --- */

/* Whether this is the only thread of the process. Another one could still read what would be freed. */
static bool is_alone(void) {
  struct stat tasks;
  return !stat("/proc/self/task", &tasks) && tasks.st_nlink == 3; /* a directory has two links of its own */
}

/* At exit or dlclose. A forked child must not end its parent's session, and must not wait for that session. */
__attribute__((destructor)) static void end(void) {
  int life = __atomic_exchange_n(&vgs_life, VGS_LIFE_ENDED, __ATOMIC_ACQ_REL);
  if (life == VGS_LIFE_FORKED)
    return;
  vgs_stream_shutdown();
  if (vgs_session_end_hook)
    vgs_session_end_hook();
  if (!end_calls())
    return; /* a thread is still inside a call: its memory stays, the process is exiting */
  if (!is_alone())
    return;
  if (vgs_session_free_hook)
    vgs_session_free_hook();
  vgs_touch_fini();
  vgs_inventory_fini(&session.welcome.inventory);
  vgs_log_fini();
}
