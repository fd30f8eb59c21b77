/* After each admitted operation an event is recorded in its stream; the operation is done when the event has completed.
 * The time that an operation takes is estimated for each kernel and shape from the completion times of events. The
 * estimates limit how much is queued on the card: operations of `ahead_ns` together, or one.
 *
 * Threads that submit query the events. So that a turn also ends when nothing more is submitted, a watcher thread
 * queries them, too; it sleeps while the session has no turn. */
#define _GNU_SOURCE
#include "vgx_gate.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "vgw_clock.h"
#include "vgx_session.h"
#include "vgx_turn.h"

enum { MARKS = 256, COSTS = 1024, DISABLE_TIMING = 2, PROBES = 8 };
/* Time between two queries: NAP_NS while another tenant has the turn, and in the watcher. In its own turn a thread
 * polls while the expected end of the first operation is less than CLOSE_NS away, before or after now; else it sleeps
 * for half of that distance, at most NAP_MOST_NS. */
enum { NAP_NS = 20000, CLOSE_NS = 150000, NAP_MOST_NS = 500000, SLACK_NS = 1000 };
/* An operation longer than `ahead_ns` is admitted this long before the one ahead of it ends, so the card is not idle.
 */
enum { NEXT_NS = 25000 };
/* An operation that takes this much longer than estimated may depend on one that is not admitted yet, so one more is
 * admitted. Only one in each such period, because the delay may also come from work that another tenant queued
 * before. */
enum { STALLED_NS = 5000000, STALLED_TIMES = 4 };
/* A session that waits for half a second gets a turn. If it gets none after that time and that many tries, the file is
 * damaged, for example by a worker that a client has taken over. From then on the session does not wait for turns. */
enum { BROKEN_NS = 2000000000, BROKEN_TRIES = 10000 };

/* An operation on the card. */
struct mark {
  CUevent event;
  uint32_t context; /* id */
  uint32_t cost;
  uint64_t submitted_ns, expected_ns;
};

struct vgx_gate {
  struct vgx_turn_seat seat;
  struct mark marks[MARKS]; /* in order of submission, from `first` on */
  uint32_t first, count;
  uint32_t entering;     /* admitted operations without an event yet */
  uint64_t ahead_ns;     /* the expected times of all these together */
  uint64_t done_ns;      /* when an operation was last seen to be done */
  uint64_t submitted_ns; /* when an operation was last admitted */
  bool has_turn;         /* set at an admission; cleared when the watcher gives the turn back */
};

struct cost {
  uint64_t key;
  uint64_t ns; /* 0: not known */
};

struct spare {
  struct spare *next;
  CUevent event;
  uint32_t context;
};

struct vgx_turns *vgx_gate_turns;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* all below */
static pthread_cond_t submitted = PTHREAD_COND_INITIALIZER;
static struct vgx_gate gates[VGX_TURN_DEVICES];
static struct cost costs[COSTS];
static struct spare *spares;
static const struct vgx_backend *backend;
static bool watched, watcher_sleeps;
static atomic_bool broken; /* this session does not wait for turns any more */

void vgx_gate_set(struct vgx_turns *turns, uint32_t tenant, uint32_t row, const uint8_t *host_devices,
                  uint32_t device_count) {
  for (uint32_t device = 0; device < VGX_TURN_DEVICES && device < device_count; device++)
    gates[device].seat = (struct vgx_turn_seat){turns, host_devices[device], tenant, row};
  vgx_gate_turns = turns;
}

/* --- expected times --- */

static uint64_t key_of(const struct vgx_operation *op, const void *fixed) {
  const uint8_t *bytes = fixed;
  uint64_t key = (uint64_t)(uintptr_t)op;
  /* Kernels and graphs are identified by the function and the shape; the fields of other operations hold addresses. */
  for (uint32_t i = 0; op->handle_count > 1 && i < op->fixed_nbytes; i++)
    key = (key ^ bytes[i]) * 0x100000001b3u;
  return key ? key : 1;
}

static uint32_t cost_of_locked(uint64_t key) {
  uint32_t place = (uint32_t)(key ^ key >> 32) % COSTS;
  for (uint32_t i = 0; i < PROBES; i++) {
    uint32_t at = (place + i) % COSTS;
    if (costs[at].key == key)
      return at;
    if (!costs[at].key) {
      costs[at].key = key;
      return at;
    }
  }
  costs[place] = (struct cost){key, 0};
  return place;
}

static void learn_locked(uint32_t place, uint64_t ns) {
  struct cost *cost = &costs[place];
  if (!cost->ns)
    cost->ns = ns;
  else /* an increase counts less: a single long time is probably a wait for something else */
    cost->ns = ns < cost->ns ? cost->ns - (cost->ns - ns) / 2 : cost->ns + (ns - cost->ns) / 8;
}

/* --- operations on the card --- */

static uint64_t policy(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }

/* How long the first operation has been running. */
static uint64_t took_locked(const struct vgx_gate *gate, uint64_t now_ns) {
  if (!gate->count)
    return 0;
  uint64_t begun = gate->marks[gate->first].submitted_ns;
  begun = begun > gate->done_ns ? begun : gate->done_ns;
  return now_ns > begun ? now_ns - begun : 0;
}

/* Publish how long the session's queued work is expected to take. */
static void tell_locked(const struct vgx_gate *gate, uint64_t now_ns) {
  uint64_t took = took_locked(gate, now_ns), left = gate->ahead_ns;
  if (gate->count) {
    uint64_t most = gate->marks[gate->first].expected_ns;
    left -= took < most ? took : most;
  }
  vgx_turn_expect(&gate->seat, gate->count || gate->entering ? left + 1 : 0, now_ns);
}

static void keep_locked(CUevent event, uint32_t context) {
  struct spare *spare = malloc(sizeof *spare);
  if (!spare) {
    backend->cuEventDestroy_v2(event);
    return;
  }
  *spare = (struct spare){spares, event, context};
  spares = spare;
}

/* An event of the current context; NULL: there is none. */
static CUevent event_locked(uint32_t context) {
  for (struct spare **link = &spares; *link; link = &(*link)->next)
    if ((*link)->context == context) {
      struct spare *spare = *link;
      CUevent event = spare->event;
      *link = spare->next;
      free(spare);
      return event;
    }
  CUevent event = NULL;
  return backend->cuEventCreate(&event, DISABLE_TIMING) == CUDA_SUCCESS ? event : NULL;
}

/* Remove operations that are done. If several are found done at once, the time is divided equally among them. */
static void look_locked(struct vgx_gate *gate, uint64_t now_ns) {
  uint32_t done = 0;
  while (done < gate->count &&
         backend->cuEventQuery(gate->marks[(gate->first + done) % MARKS].event) != CUDA_ERROR_NOT_READY)
    done++;
  if (!done)
    return;
  uint64_t each = took_locked(gate, now_ns) / done;
  for (uint32_t i = 0; i < done; i++) {
    struct mark *mark = &gate->marks[gate->first];
    if (each) /* 0: it ended before its estimated start, so its duration is unknown */
      learn_locked(mark->cost, each);
    gate->ahead_ns -= mark->expected_ns;
    keep_locked(mark->event, mark->context);
    gate->first = (gate->first + 1) % MARKS;
    gate->count--;
  }
  gate->done_ns = now_ns;
  tell_locked(gate, now_ns);
}

/* Whether an operation may be queued on the card in the tenant's turn. `*far_ns`: if it may not, how far away the
 * estimated end of the first operation on the card is, before or after now. */
static bool has_room_locked(const struct vgx_gate *gate, uint64_t expected_ns, uint64_t now_ns, uint64_t *far_ns) {
  uint32_t count = gate->count + gate->entering;
  *far_ns = 0;
  if (!count || (count < MARKS && gate->ahead_ns + expected_ns <= policy(&vgx_gate_turns->ahead_ns)))
    return true;
  if (!gate->count)
    return false;
  const struct mark *mark = &gate->marks[gate->first];
  uint64_t took = took_locked(gate, now_ns), stalled = STALLED_NS + STALLED_TIMES * mark->expected_ns;
  *far_ns = mark->expected_ns > took ? mark->expected_ns - took : took - mark->expected_ns;
  return (count == 1 && took + NEXT_NS >= mark->expected_ns) ||
         (took > stalled && now_ns - gate->submitted_ns > stalled);
}

/* --- the end of a turn --- */

static void nap(uint64_t ns) { nanosleep(&(struct timespec){0, (long)ns}, NULL); }

/* Reduce the calling thread's timer slack: by default a sleep may last 50 us longer. */
static void reduce_timer_slack(void) {
  static _Thread_local bool set;
  if (!set)
    prctl(PR_SET_TIMERSLACK, (unsigned long)SLACK_NS, 0, 0, 0);
  set = true;
}

/* Query a gate's events, and end its turn after a pause. Returns whether it still has a turn. */
static bool look_after_locked(struct vgx_gate *gate) {
  uint64_t now = vgw_now_ns();
  look_locked(gate, now);
  if (!gate->has_turn || gate->count || gate->entering)
    return gate->has_turn;
  if (now - (gate->done_ns > gate->submitted_ns ? gate->done_ns : gate->submitted_ns) <
      policy(&vgx_gate_turns->pause_ns))
    return true;
  gate->has_turn = false;
  vgx_turn_leave(&gate->seat, now);
  return false;
}

static void *watch(void *unused) {
  (void)unused;
  reduce_timer_slack();
  pthread_mutex_lock(&lock);
  for (;;) {
    bool busy = false;
    for (uint32_t device = 0; device < VGX_TURN_DEVICES; device++)
      busy |= gates[device].has_turn && look_after_locked(&gates[device]);
    watcher_sleeps = !busy;
    if (!busy) {
      pthread_cond_wait(&submitted, &lock);
      continue;
    }
    pthread_mutex_unlock(&lock);
    nap(NAP_NS);
    pthread_mutex_lock(&lock);
  }
  return NULL;
}

static void watch_locked(void) {
  pthread_t thread;
  if (watched) {
    if (watcher_sleeps)
      pthread_cond_signal(&submitted);
    return;
  }
  watched = pthread_create(&thread, NULL, watch, NULL) == 0;
  if (watched)
    pthread_detach(thread);
}

/* --- for the executor --- */

static CUstream stream_of(const struct vgx_operation *op, void *const *objects) {
  for (uint32_t i = 0; i < op->handle_count; i++)
    if (op->handles[i].kind == VGW_KIND_STREAM)
      return objects[i];
  return NULL;
}

/* The gate of the current context's device; NULL: work there waits for nothing. */
static struct vgx_gate *gate_of(const struct executor_thread *t) {
  static _Thread_local uint32_t context;
  static _Thread_local struct vgx_gate *gate;
  if (context == t->context)
    return gate;
  CUdevice device = 0;
  const struct vgx_backend *real = t->s->backend;
  bool known = real->current_device && real->current_device(&device) == CUDA_SUCCESS && device >= 0 &&
               (uint32_t)device < VGX_TURN_DEVICES;
  context = t->context;
  return gate = known ? &gates[device] : NULL;
}

static void let_in_locked(struct vgx_gate *gate, uint64_t expected_ns, uint64_t now_ns) {
  if (!gate->count && !gate->entering) { /* until `free_ns` the card executes what the previous tenant has queued */
    uint64_t free_ns = vgx_turn_free(&gate->seat);
    gate->done_ns = free_ns > gate->done_ns ? free_ns : gate->done_ns;
  }
  gate->entering++;
  gate->ahead_ns += expected_ns;
  gate->submitted_ns = now_ns;
  gate->has_turn = true;
  tell_locked(gate, now_ns);
}

/* Wait between two tries: polling if work is about to be done, so that the card does not become idle. */
static void wait_for_turn(const struct vgx_session *s, bool is_ours, uint64_t far_ns) {
  if (!is_ours)
    nap(NAP_NS);
  else if (far_ns > CLOSE_NS)
    nap(far_ns / 2 < NAP_MOST_NS ? far_ns / 2 : NAP_MOST_NS);
  else if (s->options->spin_us)
    __builtin_ia32_pause();
  else
    nap(NAP_NS);
}

struct vgx_entry vgx_gate_enter(struct executor_thread *t, const struct vgx_operation *op, const void *fixed,
                                void *const *objects) {
  struct vgx_entry entry = {0};
  struct vgx_gate *gate = gate_of(t);
  struct vgx_session *s = t->s;
  int capturing = 0;
  if (!gate || atomic_load(&broken) || vgx_turn_unneeded(&gate->seat))
    return entry;
  entry.stream = stream_of(op, objects);
  if (!s->backend->cuStreamGetCaptureInfo_v2 ||
      s->backend->cuStreamGetCaptureInfo_v2(entry.stream, &capturing, NULL, NULL, NULL, NULL) || capturing)
    return entry;
  uint64_t key = key_of(op, fixed), since = vgw_now_ns(), now = since, far;
  uint32_t refused = 0;
  reduce_timer_slack();
  pthread_mutex_lock(&lock);
  backend = s->backend;
  entry.cost = cost_of_locked(key);
  for (;; now = vgw_now_ns()) {
    look_locked(gate, now);
    entry.expected_ns = costs[entry.cost].ns;
    if (!entry.expected_ns)
      entry.expected_ns = policy(&vgx_gate_turns->ahead_ns);
    bool room = has_room_locked(gate, entry.expected_ns, now, &far), ours = vgx_turn_ask(&gate->seat, now, since);
    if ((room && ours) || atomic_load(&s->ended))
      break;
    refused += !ours;
    if (refused > BROKEN_TRIES && now - since > BROKEN_NS) {
      if (!atomic_exchange(&broken, true))
        vgx_log(s, 4, "no turn on the card came within 2 s: this session's work no longer waits for turns");
      pthread_mutex_unlock(&lock);
      return entry;
    }
    pthread_mutex_unlock(&lock);
    wait_for_turn(s, ours, far);
    pthread_mutex_lock(&lock);
  }
  let_in_locked(gate, entry.expected_ns, now);
  pthread_mutex_unlock(&lock);
  entry.gate = gate;
  return entry;
}

void vgx_gate_leave(struct executor_thread *t, const struct vgx_entry *entry, CUresult result) {
  struct vgx_gate *gate = entry->gate;
  if (!gate)
    return;
  pthread_mutex_lock(&lock);
  CUevent event = result == CUDA_SUCCESS && gate->count < MARKS ? event_locked(t->context) : NULL;
  if (event && backend->cuEventRecordWithFlags(event, entry->stream, 0) != CUDA_SUCCESS) {
    backend->cuEventDestroy_v2(event);
    event = NULL;
  }
  gate->entering--;
  if (event)
    gate->marks[(gate->first + gate->count++) % MARKS] =
        (struct mark){event, t->context, entry->cost, gate->submitted_ns, entry->expected_ns};
  else
    gate->ahead_ns -= entry->expected_ns;
  tell_locked(gate, vgw_now_ns());
  watch_locked();
  pthread_mutex_unlock(&lock);
}

void vgx_gate_clear(void) {
  if (!vgx_gate_turns)
    return;
  pthread_mutex_lock(&lock);
  for (uint32_t device = 0; device < VGX_TURN_DEVICES; device++) {
    struct vgx_gate *gate = &gates[device];
    for (; gate->count; gate->count--, gate->first = (gate->first + 1) % MARKS) {
      gate->ahead_ns -= gate->marks[gate->first].expected_ns;
      backend->cuEventDestroy_v2(gate->marks[gate->first].event);
    }
    if (gate->has_turn)
      tell_locked(gate, vgw_now_ns());
  }
  while (spares) {
    struct spare *spare = spares;
    spares = spare->next;
    backend->cuEventDestroy_v2(spare->event);
    free(spare);
  }
  pthread_mutex_unlock(&lock);
}
