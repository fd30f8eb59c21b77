/* Racecheck's state, notes of accesses, and the order of what a launch does: see vgx_sim_race_order.c. */
#ifndef VGX_SIM_RACE_ORDER_H
#define VGX_SIM_RACE_ORDER_H

#include "vgx_sim_watch_part.h"

/* A note of an access, 0: none. It names an epoch (31 bits), a site, a lane, a warp, and bytes of a word.
 * Notes are small because there are several for each word of memory. */
typedef int64_t vgx_sim_note;
#define VGX_SIM_NOTE_EPOCH 32
#define VGX_SIM_NOTE_SITE 16
#define VGX_SIM_NOTE_LANE 11
#define VGX_SIM_NOTE_WARP 6
#define VGX_SIM_NOTE_BYTES 2
#define VGX_SIM_NOTE_ORDERED 2ll /* an atomic or volatile access */
#define VGX_SIM_ALL_BYTES (15ll << VGX_SIM_NOTE_BYTES)
#define VGX_SIM_NOTE_SITE_MAX 0xffffu
#define VGX_SIM_NOTE_SITES ((long long)VGX_SIM_NOTE_SITE_MAX << VGX_SIM_NOTE_SITE)
#define VGX_SIM_NOTE_LANES (31ll << VGX_SIM_NOTE_LANE)
#define VGX_SIM_NOTE_WARPS (31ll << VGX_SIM_NOTE_WARP)

#define VGX_SIM_RACE_BARRIERS 17u
#define VGX_SIM_RACE_OBJECTS 64u
#define VGX_SIM_RACE_USES 16u

struct vgx_sim_clock {
  uint32_t of[VGX_SIM_WARPS_MAX];
};

enum vgx_sim_race_kind { VGX_SIM_RACE_LOAD, VGX_SIM_RACE_STORE, VGX_SIM_RACE_ATOMIC, VGX_SIM_RACE_ACQUIRE };
#define VGX_SIM_RACE_KINDS 4u

/* Of the CTA's shared memory: vgx_sim_race_shared.c. A granule is a word, or a byte once a byte of a word was accessed
 * by itself. */
struct vgx_sim_race_shared {
  uint64_t *bits; /* for 64 granules at a time, each warp's bitmaps, one for each kind */
  struct vgx_sim_race_log *logs;
  struct vgx_sim_race_traces *traces;
  uint64_t room;                       /* bytes of shared memory */
  uint32_t granule;                    /* log2 of its bytes: 2 or 0 */
  uint32_t low, high;                  /* indices of bitmaps in use */
  uint32_t active[VGX_SIM_RACE_KINDS]; /* warps with bits of a kind */
  uint32_t users;                      /* warps with a log */
  uint32_t unset;                      /* warps with lists whose bits are not set */
};

/* A CTA that runs. */
struct vgx_sim_races {
  struct vgx_sim_race_shared shared;
  uint8_t *loads; /* to be noted when it is the CTA's turn: vgx_sim_race_ahead.c; NULL: none yet */
  uint32_t loads_nbytes;
  uint32_t launch, cta, warp_count;
  uint32_t first_of_launch, first; /* epochs: those before are of other launches, of other CTAs in this memory */
  struct vgx_sim_clock warps[VGX_SIM_WARPS_MAX]; /* each warp's vector clock */
  struct {
    uint64_t epoch; /* 0: a new one is due */
    uint32_t time;
  } current[VGX_SIM_WARPS_MAX];
  uint32_t round[VGX_SIM_RACE_BARRIERS][VGX_SIM_WARPS_MAX];
  struct {
    struct vgx_sim_clock clock;
    uint32_t round, warps; /* warps that have arrived, bits */
    uint32_t waiting;      /* of them: those that wait for all; `clock` lacks what they know of others */
    bool whole, opened;    /* for all of the CTA, and all wait; one has resumed */
  } gathered[VGX_SIM_RACE_BARRIERS][2];
  struct vgx_sim_clock objects[VGX_SIM_RACE_OBJECTS]; /* but for the time of the warp that has used it last: */
  uint32_t object_times[VGX_SIM_RACE_OBJECTS];        /* but for: */
  struct {
    uint64_t objects;
    uint32_t time;
  } uses[VGX_SIM_WARPS_MAX][VGX_SIM_RACE_USES]; /* by warp: the last uses of objects that it has used last */
  uint32_t use_counts[VGX_SIM_WARPS_MAX];
  uint8_t object_users[VGX_SIM_RACE_OBJECTS];
  uint64_t known_objects[VGX_SIM_WARPS_MAX]; /* by warp: that tell it nothing new, and lack only its own time */
  uint64_t used_objects;
  uint32_t fenced; /* warps that have passed a fence and not stored since, bits */
  bool uses_barriers;
  bool at_begin; /* nothing has ordered its warps since it began */
  bool alone;    /* its epochs are all of the launch's since it began */
};

/* A warp's access while it is looked at. */
struct vgx_sim_race_access {
  struct vgx_sim_watch *watch;
  struct vgx_sim_races *races;
  const struct vgx_sim_thread *thread;
  const struct vgx_sim_site *site;
  const uint8_t *values; /* by lane: what is stored; NULL: unknown */
  vgx_sim_note note;     /* of lane 0, for all bytes */
  uint32_t warp, epoch;
  enum vgx_sim_race_kind kind;
  bool stores, ordered;
  uint32_t reported; /* lanes with a report about this instruction: */
  const struct vgx_sim_site *reported_site;
};

static inline uint32_t vgx_sim_epoch_of(vgx_sim_note n) { return (uint32_t)(n >> VGX_SIM_NOTE_EPOCH); }

static inline uint32_t vgx_sim_warp_of(vgx_sim_note n) { return (uint32_t)(n >> VGX_SIM_NOTE_WARP) & 31; }

static inline uint32_t vgx_sim_lane_of(vgx_sim_note n) { return (uint32_t)(n >> VGX_SIM_NOTE_LANE) & 31; }

static inline vgx_sim_note vgx_sim_with_lane(vgx_sim_note n, uint32_t lane) {
  return (n & ~VGX_SIM_NOTE_LANES) | (vgx_sim_note)(lane & 31) << VGX_SIM_NOTE_LANE;
}

/* Bytes of a lane's access at the noted site; 0: not the same for all. */
uint32_t vgx_sim_race_site_nbytes(vgx_sim_note n);
/* Whether the noted access is ordered before this one. */
bool vgx_sim_race_is_ordered(const struct vgx_sim_race_access *a, vgx_sim_note before);
/* Whether the noted access is of the launch. */
bool vgx_sim_race_is_of_launch(const struct vgx_sim_races *r, vgx_sim_note n);
/* Whether they are of one warp of one CTA. */
bool vgx_sim_race_is_same_warp(const struct vgx_sim_race_access *a, vgx_sim_note before);
/* Look at a note of the same bytes: a race unless they are ordered, or both atomic, or a store changes nothing. */
void vgx_sim_race_meets(struct vgx_sim_race_access *a, vgx_sim_note before, bool stored, uint64_t address,
                        uint32_t lane);

/* The access before; site NULL: not known any more. */
struct vgx_sim_race_before {
  const struct vgx_sim_site *site;
  uint32_t cta, thread;
};

/* Report a race, once for each lane, unless a store changes nothing. `address` lies in what the lane accesses. */
void vgx_sim_race_found(struct vgx_sim_race_access *a, const struct vgx_sim_race_before *before, bool stored,
                        uint64_t address, uint32_t lane);

/* Memory for epochs; false: memory is short. */
bool vgx_sim_race_reserve_epochs(void);

struct vgx_sim_epoch {
  uint32_t launch, cta, clock, time;
};
struct vgx_sim_epochs {
  struct vgx_sim_epoch *list; /* a ring */
  uint32_t last, base;        /* the ring begins after the second: no launch of those before is running */
  uint32_t now;               /* counts the operations that order CTAs */
};
extern struct vgx_sim_epochs vgx_sim_race_epochs;
#define VGX_SIM_EPOCHS (1u << 22) /* that are remembered; an access of an older one is taken for ordered */
#define VGX_SIM_EPOCH_MAX 0x7ffffff0u

static inline uint32_t vgx_sim_race_begin_epoch(struct vgx_sim_races *r, uint32_t warp) {
  if (vgx_sim_race_epochs.last >= VGX_SIM_EPOCH_MAX)
    return 0;
  uint32_t epoch = ++vgx_sim_race_epochs.last, now = vgx_sim_race_epochs.now;
  vgx_sim_race_epochs.list[(epoch - vgx_sim_race_epochs.base) % VGX_SIM_EPOCHS] =
      (struct vgx_sim_epoch){r->launch, r->cta, r->warps[warp].of[warp], now};
  r->current[warp].epoch = epoch;
  r->current[warp].time = now;
  return epoch;
}

/* The warp's epoch: a new one when its clock or the time has changed. 0: numbers are used up. */
static inline uint64_t vgx_sim_race_wide_epoch(struct vgx_sim_races *r, uint32_t warp) {
  bool lasts = r->current[warp].epoch && r->current[warp].time == vgx_sim_race_epochs.now;
  return lasts ? r->current[warp].epoch : vgx_sim_race_begin_epoch(r, warp);
}

static inline uint32_t vgx_sim_race_epoch(struct vgx_sim_races *r, uint32_t warp) {
  return (uint32_t)vgx_sim_race_wide_epoch(r, warp);
}

uint32_t vgx_sim_race_last_epoch(void);
void vgx_sim_race_clear_epochs(void);
/* No launch runs: epochs so far are past, and the next ones use the same memory. */
void vgx_sim_race_end_epochs(void);
/* A number for a site, never 0; 0: there are too many. */
uint32_t vgx_sim_race_find_site(const struct vgx_sim_site *site);
struct vgx_sim_numbered_site {
  const struct vgx_sim_site *site;
  uint32_t nbytes; /* notes of a launch that has ended may outlive the site's module */
};
extern struct vgx_sim_numbered_site vgx_sim_race_sites[]; /* by number, which is mostly this hash: */

static inline uint32_t vgx_sim_race_hash_of_site(const struct vgx_sim_site *site) {
  return (uint32_t)(((uintptr_t)site >> 3) * 2654435761u >> 8) & VGX_SIM_NOTE_SITE_MAX;
}

static inline bool vgx_sim_race_is_hash_number(const struct vgx_sim_site *site) {
  uint32_t hash = vgx_sim_race_hash_of_site(site);
  return vgx_sim_race_sites[hash].site == site && vgx_sim_race_sites[hash].nbytes == site->nbytes && hash;
}

static inline uint32_t vgx_sim_race_site_number(const struct vgx_sim_site *site) {
  return vgx_sim_race_is_hash_number(site) ? vgx_sim_race_hash_of_site(site) : vgx_sim_race_find_site(site);
}

/* Forget all sites if half the numbers are used. The caller has dropped all notes of accesses, which name sites. */
void vgx_sim_race_clear_sites(void);
/* Accesses have times: those before a fence are not later than it, those after it are later. */
void vgx_sim_race_fence(const struct vgx_sim_races *r);
void vgx_sim_race_acquire(const struct vgx_sim_races *r);

static inline enum vgx_sim_race_kind vgx_sim_race_kind(const struct vgx_sim_site *site) {
  return site->kind == VGX_SIM_READ      ? VGX_SIM_RACE_LOAD
         : site->kind == VGX_SIM_WRITE   ? VGX_SIM_RACE_STORE
         : site->kind == VGX_SIM_ACQUIRE ? VGX_SIM_RACE_ACQUIRE
                                         : VGX_SIM_RACE_ATOMIC;
}

#endif
