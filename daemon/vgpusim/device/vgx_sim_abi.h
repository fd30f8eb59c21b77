/* The contract between compiled kernels (vgpusim emits them) and what runs them.
 *
 * A kernel is compiled for one block shape: a function that runs a warp, and data that say how its warps run. The
 * scheduler (vgx_sim_schedule.c) takes CTAs from `regions` or `next_cta` until none is left, running each CTA to
 * completion, so a CTA may wait for lower-numbered ones. The Python side asserts the same offsets
 * (vgpusim/codegen/abi.py).
 *
 * A resident kernel, of a cooperative launch, runs all CTAs at once, on one thread: its CTAs may wait for each other.
 * CTA i has frames at i times CompiledKernel.frame_nbytes, local memory likewise, and shared memory at i times
 * vgx_sim_shared_stride.
 *
 * An interleaved kernel, whose CTAs may wait for each other without such a launch, runs one CTA after another on each
 * thread. When all CTAs of a thread wait, it starts further ones next to them, each in a place of its own, up to
 * `places`. */
#ifndef VGX_SIM_ABI_H
#define VGX_SIM_ABI_H

#include <stddef.h>
#include <stdint.h>

#define VGX_SIM_ABI_VERSION 21 /* part of the disk cache's key */

struct vgx_sim_region;
struct vgx_sim_services;
struct vgx_sim_site;
struct vgx_sim_sync_point;
struct vgx_sim_thread;
struct vgx_sim_watch;

/* One launch, shared by every pool thread that works on it; read-only to the kernel. */
struct vgx_sim_launch {
  const uint8_t *params;             /*  0: parameter block, readable 16 bytes past its end */
  uint64_t *next_cta;                /*  8: next CTA to claim, atomic */
  uint64_t cta_count;                /* 16: grid.x * grid.y * grid.z */
  uint64_t cta_chunk;                /* 24: CTAs claimed at a time, at least */
  uint32_t grid[3];                  /* 32 */
  uint32_t block[3];                 /* 44 */
  uint32_t shared_static_nbytes;     /* 56 */
  uint32_t shared_dynamic_nbytes;    /* 60 */
  const uint64_t *symbols;           /* 64: device address of each module variable, in the compiler's order */
  const uint32_t *stop;              /* 72: nonzero: leave at the next CTA (volatile read) */
  struct vgx_sim_services *services; /* 80 */
  uint64_t launch_id;                /* 88: %gridid */
  uint8_t *workspace;                /* 96: %envreg1 and 2 of a cooperative launch, zeroed; else NULL */
  uint64_t places;                   /* 104: CTAs that a thread runs at once in an interleaved kernel, at most */
  struct vgx_sim_region *regions;    /* 112: all CTAs, of a kernel whose CTAs never wait; NULL: next_cta tells */
  uint32_t region_count;             /* 120 */
  uint32_t region;                   /* 124: which one this thread begins with */
};

/* CTAs [begin, end) of a launch, of which one thread claims the first ones, and threads that have none left the others.
 */
struct vgx_sim_region {
  _Alignas(64) uint64_t next; /* to be claimed, atomic */
  uint64_t begin, end;
};

/* A range in which a watched kernel's accesses need no check: the allocation that the instruction's last access was in.
 * Valid while *generation equals `seen`. */
struct vgx_sim_known {
  uint64_t begin, end;
  const uint64_t *generation; /* never NULL */
  uint64_t seen;
};

#define VGX_SIM_KNOWN_COUNT 8u

/* One pool thread. */
struct vgx_sim_thread {
  uint8_t *shared; /* 0: base of the thread's shared window: no 32-bit offset leaves its slot (vgx_sim_reach.h) */
  uint8_t *frames; /* 8: scratch of CompiledKernel.frame_nbytes bytes, 64-byte aligned: warp state, out of reach */
  uint32_t sm;     /* 16: %smid */
  uint32_t number; /* 20: of the thread in its launch */
  /* Which warp this thread is running. The scheduler sets the CTA, a kernel the warp as it begins or resumes one. */
  uint32_t cta[3];    /* 24 */
  uint32_t warp;      /* 36: in the CTA; UINT32_MAX: not known */
  uint8_t *local;     /* 40: CompiledKernel.local_nbytes bytes, 64-byte aligned */
  uint64_t *counters; /* 48: VGX_SIM_COUNTERS, which a counted kernel adds to */
  /* Of a watched kernel: known ranges by instruction (struct vgx_sim_site), and how much of the CTA's shared memory is
   * known to be defined. */
  struct vgx_sim_known known[VGX_SIM_KNOWN_COUNT]; /* 56 */
  uint64_t known_shared_nbytes;                    /* 312 */
};

/* Services that the driver offers to a kernel. Called on the pool thread, inside the kernel. */
struct vgx_sim_services {
  /* Device printf: `format` and `args` as the vprintf ABI passes them (args: packed, naturally aligned). Returns the
   * number of arguments, as vprintf does. */
  int32_t (*vprintf)(struct vgx_sim_services *, const char *format, const uint8_t *args);
  /* Device assert of one thread, which ends. The launch ends with CUDA_ERROR_ASSERT (710) when its running CTAs have
   * ended, or after a moment. `thread` is the thread's number in its CTA. */
  void (*assertfail)(struct vgx_sim_services *, const char *message, const char *file, uint32_t line,
                     const char *function, const uint32_t cta[3], uint32_t thread);
  /* trap and failed checks: does not return; the launch ends with `result` (a CUresult; trap is 719). `cta` is NULL
   * where no single thread has failed. */
  void (*fail)(struct vgx_sim_services *, int32_t result, const char *message, const uint32_t cta[3], uint32_t thread);
  /* Device heap, limited by CU_LIMIT_MALLOC_HEAP_SIZE; NULL when it is full. */
  void *(*malloc)(struct vgx_sim_services *, uint64_t nbytes);
  void (*free)(struct vgx_sim_services *, void *);
  /* An access of a thread that a check refuses: does not return; the launch ends with `result`. `what` describes it. */
  void (*bad_access)(struct vgx_sim_services *, int32_t result, const char *what, uint64_t address,
                     const uint32_t cta[3], uint32_t thread);
  /* A texture or surface instruction for the lanes in `mask`: rows of 32 words in and out, as vgx_sim_sample.c says. */
  void (*texture)(struct vgx_sim_services *, uint64_t form, uint32_t mask, const uint64_t *in, uint64_t *out);
  /* A thread's access outside of what kernels may reach: does not return; the launch ends with 700. */
  void (*outside)(struct vgx_sim_services *, const char *what, uint64_t address, const uint32_t cta[3],
                  uint32_t thread);
  /* For watched kernels: see vgx_sim_watch.h. */
  void (*access)(struct vgx_sim_services *, struct vgx_sim_thread *, const struct vgx_sim_site *,
                 const uint64_t *addresses, uint32_t mask, const uint8_t *values, const uint32_t *sizes,
                 uint32_t starts, uint32_t is_known, uint64_t objects);
  void (*sync)(struct vgx_sim_services *, const struct vgx_sim_thread *, const struct vgx_sim_sync_point *);
  /* Called by the scheduler when all CTAs of an interleaved kernel on this thread wait: lets other threads run, and
   * provides memory for one more CTA in place `place`, unless that is 0. Returns the base of the frames: those of place
   * i, from 1 on, are at i times vgx_sim_code's frames_nbytes. NULL: memory is short. */
  uint8_t *(*another)(struct vgx_sim_services *, struct vgx_sim_thread *, uint64_t place);
  /* A thread's call of the device runtime (ptx/device_runtime.py): launches from kernels. */
  uint64_t (*device_runtime)(struct vgx_sim_services *, uint32_t question, uint64_t, uint64_t, uint64_t, uint64_t,
                             uint64_t);
  /* For watched kernels: `access`, if lanes' distances from lane 0 are known (struct vgx_sim_site). */
  void (*row)(struct vgx_sim_services *, struct vgx_sim_thread *, const struct vgx_sim_site *, uint64_t base,
              uint32_t mask, const uint8_t *values, uint32_t is_known);
  uint32_t (*group)(struct vgx_sim_services *, struct vgx_sim_thread *, const struct vgx_sim_site *, uint64_t base,
                    uint32_t mask);
  struct vgx_sim_watch *watch; /* NULL: the kernel is not watched */
  /* A call through a pointer that the kernel, which cannot hold all functions, has no code for. Returns as if the
   * function did nothing, so that the launch's other calls are found, too: it then begins again with all their
   * functions. Does not return once the launch has changed what others see: it ends with `message`. */
  void (*absent)(struct vgx_sim_services *, uint64_t pointer, const char *message, const uint32_t cta[3],
                 uint32_t thread);
  uint64_t own_begin;   /* VGX_SIM_SLOTS_BEGIN: shared, local and parameter memory lie above, all else below */
  uint32_t changed;     /* atomic: enum vgx_sim_changed, of such a kernel */
  uint32_t watches_all; /* nonzero: known accesses (struct vgx_sim_known) are announced, too */
  /* Such a kernel is about to change memory below own_begin, or what others see besides memory, and `changed` is not
   * yet VGX_SIM_CHANGED: sets it, and returns 1; 0, or, unless `may_skip`, does not return, if the launch is to begin
   * again. */
  int32_t (*change)(struct vgx_sim_services *, int32_t may_skip);
  /* For watched kernels: lanes use a value that nothing has written; `stores`: the next instruction stores it. */
  void (*unset)(struct vgx_sim_services *, struct vgx_sim_thread *, const struct vgx_sim_site *, uint32_t mask,
                uint32_t stores);
  /* Of a kernel that follows values which nothing has written, by lane, a bit for each byte: what the last load has
   * read of them, and what the next store stores, if it stores any (`stores_unset`). Such a launch runs on one thread.
   */
  uint32_t unset_read[32], unset_stored[32];
  uint64_t stores_unset;
  /* For watched kernels: see vgx_sim_watch.h. */
  uint32_t (*pair)(struct vgx_sim_services *, struct vgx_sim_thread *, const struct vgx_sim_site *first, uint64_t base,
                   const struct vgx_sim_site *second, uint64_t second_base);
  /* Called by the scheduler when a CTA of a watched launch has ended (vgx_sim_watch_turn.c). Returns 0 if the thread
   * better leaves the others to other threads. */
  int32_t (*end_cta)(struct vgx_sim_services *, const struct vgx_sim_thread *);
};

enum vgx_sim_changed {
  VGX_SIM_UNCHANGED,
  VGX_SIM_CHANGED,
  VGX_SIM_TO_BEGIN_AGAIN, /* it lacks a function: nothing that others see changes any more */
};

/* From one CTA's shared memory to the next in a resident launch. */
static inline uint64_t vgx_sim_shared_stride(const struct vgx_sim_launch *launch) {
  return ((uint64_t)launch->shared_static_nbytes + launch->shared_dynamic_nbytes + 1023) & ~1023ull;
}

/* From the shared memory of one place to the next in an interleaved kernel; between them lies an inaccessible page. */
static inline uint64_t vgx_sim_place_stride(const struct vgx_sim_launch *launch) {
  return ((uint64_t)launch->shared_static_nbytes + launch->shared_dynamic_nbytes + 8191) & ~4095ull;
}

#define VGX_SIM_BARRIER_COUNT 17u   /* barriers of a CTA: its own 16, then that of its cluster */
#define VGX_SIM_CLUSTER_BARRIER 16u /* the number of the cluster's barrier */
#define VGX_SIM_RUNNING UINT32_MAX  /* in place of the barrier that a warp waits at */
#define VGX_SIM_ENDED (UINT32_MAX - 1)

#define VGX_SIM_RAN 0x10000u /* in a round's result */

/* VGX_SIM_IN_ORDER: run warp `warp` of thread->cta, to its end. VGX_SIM_ROWS: run `state` CTAs, neighbours in x from
 * thread->cta on, unless the launch stops. Of other kernels: run each warp of thread->cta that does not wait, until it
 * waits or ends; returns how many have ended, plus VGX_SIM_RAN if one ran. */
typedef uint32_t vgx_sim_warp_fn(const struct vgx_sim_launch *, struct vgx_sim_thread *, uint32_t state, uint32_t warp);

enum vgx_sim_turns {
  VGX_SIM_IN_ORDER, /* warps do not wait: each runs to its end */
  VGX_SIM_LOCKSTEP, /* every barrier is for all warps */
  VGX_SIM_BARRIERS,
  VGX_SIM_RESIDENT,    /* resident: all CTAs take turns on one thread */
  VGX_SIM_CLUSTERS,    /* the CTAs of a cluster take turns on one thread */
  VGX_SIM_INTERLEAVED, /* interleaved: as many CTAs take turns as are needed for one of them to go on */
  VGX_SIM_ROWS,        /* warps do not wait, and one call runs whole CTAs */
};

/* Of a kernel that was compiled quickly (codegen/outline.py): its function, which is replaced at any time by one that
 * does the same faster: a warp that waits resumes in the other one. */
struct vgx_sim_quick {
  vgx_sim_warp_fn *warp; /*  0: atomic */
  uint64_t budget_ns;    /*  8: how much processor time it may use until it is worth the other one */
  uint64_t spent_ns;     /* 16: atomic */
};

/* How a kernel's warps run; emitted by codegen/emit_code.py. */
struct vgx_sim_code {
  vgx_sim_warp_fn *warp;       /*  0: see `quick` */
  uint64_t frames_nbytes;      /*  8: of a CTA */
  uint64_t locals_nbytes;      /* 16: local memory of a CTA */
  uint64_t turn;               /* 24: offset, in a CTA's frames, of the scheduler's state for it, if CTAs take turns */
  uint32_t warp_count;         /* 32: of a CTA */
  uint32_t turns;              /* 36: enum vgx_sim_turns */
  uint32_t cluster[3];         /* 40: CTAs of a cluster in x, y and z */
  uint32_t flush;              /* 52: subnormals are zero, as inputs and as results */
  struct vgx_sim_quick *quick; /* 56: NULL: `warp` is all there is */
};

_Static_assert(offsetof(struct vgx_sim_launch, grid) == 32, "abi");
_Static_assert(offsetof(struct vgx_sim_launch, symbols) == 64, "abi");
_Static_assert(sizeof(struct vgx_sim_launch) == 128, "abi");
_Static_assert(offsetof(struct vgx_sim_thread, sm) == 16, "abi");
_Static_assert(offsetof(struct vgx_sim_thread, cta) == 24, "abi");
_Static_assert(sizeof(struct vgx_sim_thread) == 320, "abi");
_Static_assert(offsetof(struct vgx_sim_services, device_runtime) == 88, "abi");
_Static_assert(offsetof(struct vgx_sim_services, absent) == 120, "abi");
_Static_assert(offsetof(struct vgx_sim_services, pair) == 424, "abi");
_Static_assert(offsetof(struct vgx_sim_services, changed) == 136, "abi");
_Static_assert(offsetof(struct vgx_sim_services, watches_all) == 140, "abi");
_Static_assert(offsetof(struct vgx_sim_services, change) == 144, "abi");
_Static_assert(offsetof(struct vgx_sim_code, warp_count) == 32, "abi");
_Static_assert(sizeof(struct vgx_sim_code) == 64, "abi");
_Static_assert(sizeof(struct vgx_sim_quick) == 24, "abi");

#endif
