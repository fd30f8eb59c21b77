/* The sanitizer. Kernels that are compiled to be watched announce each access and each barrier; a tool's finding
 * becomes a report, one line of JSON for `vgpu sanitize`. Without a tool nothing here runs.
 *
 * A kernel skips the call for accesses that are known to be correct (struct vgx_sim_known), but never for racecheck.
 * For it and initcheck kernels run on one thread, or their CTAs take turns (vgx_sim_watch_turn.c): the state about
 * memory needs no atomic operations. */
#ifndef VGX_SIM_WATCH_H
#define VGX_SIM_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "vgx_sim_abi.h"
#include "vgx_sim_defined.h"

enum { /* tools, bits; vgpud/config.py has the same */
       VGX_SIM_MEMCHECK = 1,
       VGX_SIM_INITCHECK = 2, /* of global memory */
       VGX_SIM_RACECHECK = 4,
       VGX_SIM_SYNCCHECK = 8,
       VGX_SIM_LEAKCHECK = 16,
       VGX_SIM_INITCHECK_SHARED = 32,
       VGX_SIM_INITCHECKS = VGX_SIM_INITCHECK | VGX_SIM_INITCHECK_SHARED,
};

enum vgx_sim_access_kind { /* codegen/emit_watch.py */
                           VGX_SIM_READ,
                           VGX_SIM_WRITE,
                           VGX_SIM_ATOMIC,
                           VGX_SIM_ACQUIRE, /* a volatile or ordered load */
                           VGX_SIM_RELEASE, /* likewise a store */
                           VGX_SIM_OBJECT,  /* an mbarrier */
};

/* Bytes without gaps that lanes access one after another. */
struct vgx_sim_row {
  int32_t offset; /* from lane 0's address */
  uint32_t nbytes, lane;
  const struct vgx_sim_site *site; /* of a group's row */
};
/* A site that uses values has for rows the loads that they may come from: `offset` is the line. */

#define VGX_SIM_PATTERN_STRIPES 1u /* lanes at equal distances */

/* An instruction, as the compiler describes it; or a group of loads from one base register, described by the first one
 * and by all rows. */
struct vgx_sim_site {
  const char *text, *place; /* of the instruction; file:line, and where that is inlined */
  uint32_t nbytes, align;   /* bytes of a lane's access; 0: each lane has its own */
  uint32_t kind, known;     /* entry of vgx_sim_thread.known */
  /* If the distances of lanes from lane 0 are known: for each bit of a lane's number, and as rows. */
  int32_t steps[5];
  uint32_t row_count, span_count;         /* 0: unknown */
  const struct vgx_sim_row *rows, *spans; /* spans: the bytes of all rows, joined where they meet */
  int32_t low, high;                      /* of the distances */
  uint32_t line;                          /* of the PTX */
  bool distinct;                          /* no two lanes have one place */
  bool tracked; /* a load; what it reads of shared memory that nothing has written is reported where it is used */
  /* Of plain loads and stores, for racecheck: log2 of the bytes, 32 to 128, that lanes access one after another, from
   * lane 0's on; VGX_SIM_PATTERN_STRIPES; 0: none of these. */
  uint8_t pattern;
};

enum vgx_sim_sync {
  VGX_SIM_SYNC_WAIT,
  VGX_SIM_SYNC_ARRIVE,
  VGX_SIM_SYNC_RESUME,
  VGX_SIM_SYNC_WARP,
  VGX_SIM_SYNC_FENCE
};

/* A barrier, or what else orders accesses. */
struct vgx_sim_sync_point {
  const struct vgx_sim_site *site;
  enum vgx_sim_sync sync;
  uint32_t number, expected; /* barrier; threads, 0: all (a warp barrier: the lanes it names) */
  uint32_t mask, others;     /* lanes that have arrived here, and lanes that wait elsewhere */
};

/* The allocation that holds an address, or the one nearest to it. */
struct vgx_sim_placed {
  uint64_t address, nbytes;   /* what the program has asked for */
  uint64_t pages, pages_end;  /* what is accessible */
  const uint64_t *generation; /* atomic; a change says: look it up again; NULL: look it up at each access */
};

/* The first wrong access, for the driver's own message. */
struct vgx_sim_finding {
  bool found;
  uint64_t address;
  uint32_t cta[3], warp, thread;
  char text[700];
};

#define VGX_SIM_WATCH_THREADS 8u /* of a launch whose CTAs take turns */

struct vgx_sim_cta_watch;

/* What a thread of a launch runs. */
struct vgx_sim_watched_thread {
  _Alignas(64) struct vgx_sim_cta_watch *last; /* the state used last, and its CTA; NULL: none yet */
  uint32_t last_cta[3];
  bool ahead;                     /* of a CTA's turn */
  uint32_t cta_count, late_count; /* CTAs that have ended; those that have mostly waited */
  uint64_t begin_ns, waited_ns;   /* when this CTA began, at the latest; how long it has waited for its turn */
};

/* One launch, as watched. */
struct vgx_sim_watch {
  uint32_t tools;
  bool (*look)(uint64_t address,
               struct vgx_sim_placed *found); /* finds an allocation, like vgx_sim_look; false: none is near */
  void (*log)(const char *format, ...);
  const char *kernel; /* mangled; readers of the reports demangle it */
  const struct vgx_sim_launch *launch;
  bool resident;
  bool pages; /* only accesses to inaccessible pages are wrong: used to find what faulted in a plain run */
  uint32_t error_count;
  uint64_t launched_by;              /* host call stack; 0: unknown */
  struct vgx_sim_services *services; /* of the access that is looked at */
  uint64_t lease;                    /* on the state about memory: vgx_sim_watch.c */
  struct vgx_sim_cta_watch *ctas;    /* of a resident launch, by number; else of the CTA that each thread runs */
  struct vgx_sim_finding finding;
  bool in_order; /* CTAs take turns: */
  /* It is the turn of a CTA that was ahead of it. */
  void (*begin_turn)(struct vgx_sim_watch *, struct vgx_sim_cta_watch *, const struct vgx_sim_thread *);
  uint32_t sleepers;                                            /* atomic; threads that wait for a turn */
  uint64_t turn;                                                /* atomic; the CTA before which all have ended */
  struct vgx_sim_watched_thread threads[VGX_SIM_WATCH_THREADS]; /* those of other launches may share one */
};

void vgx_sim_watch_begin(struct vgx_sim_watch *watch, uint32_t tools, const char *kernel,
                         const struct vgx_sim_launch *launch, bool resident);
void vgx_sim_watch_end(struct vgx_sim_watch *watch);

/* Members of struct vgx_sim_services. `starts`: lanes that do not access the bytes after those of the lane before; as
 * if all lanes acted. `objects`: of atomic and ordered accesses, a bit for each word, by its address modulo 64; 0:
 * unknown. `is_known`: the kernel knows that the access is correct (struct vgx_sim_known). */
void vgx_sim_serve_access(struct vgx_sim_services *services, struct vgx_sim_thread *thread,
                          const struct vgx_sim_site *site, const uint64_t *addresses, uint32_t mask,
                          const uint8_t *values, const uint32_t *sizes, uint32_t starts, uint32_t is_known,
                          uint64_t objects);
/* The member `row`: lane 0's address tells all. */
void vgx_sim_serve_row(struct vgx_sim_services *services, struct vgx_sim_thread *thread,
                       const struct vgx_sim_site *site, uint64_t base, uint32_t mask, const uint8_t *values,
                       uint32_t is_known);
/* The member `group`: a group of loads. Returns 1 if all is noted; 0: each must be announced. */
uint32_t vgx_sim_serve_group(struct vgx_sim_services *services, struct vgx_sim_thread *thread,
                             const struct vgx_sim_site *site, uint64_t base, uint32_t mask);
/* The member `pair`: a load that was not announced yet, NULL: none, which is known to be correct and of all lanes; then
 * a store likewise, NULL: another one. Returns 1 if the store is noted; 0: it must be announced. */
uint32_t vgx_sim_serve_pair(struct vgx_sim_services *services, struct vgx_sim_thread *thread,
                            const struct vgx_sim_site *first, uint64_t base, const struct vgx_sim_site *second,
                            uint64_t second_base);
/* The member `unset`. */
void vgx_sim_serve_unset(struct vgx_sim_services *services, struct vgx_sim_thread *thread,
                         const struct vgx_sim_site *site, uint32_t mask, uint32_t stores);
void vgx_sim_serve_sync(struct vgx_sim_services *services, const struct vgx_sim_thread *thread,
                        const struct vgx_sim_sync_point *point);

/* Report how many launches were watched, the allocations that the program has not freed, and how many findings were not
 * reported. */
void vgx_sim_watch_totals(void (*log)(const char *format, ...));

#endif
