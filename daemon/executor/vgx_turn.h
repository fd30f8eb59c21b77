/* How tenants share a card by weight: the file that vgpud makes (vgpud/tenancy/turns.py) and the workers of all tenants
 * map. A card has at most one tenant whose turn it is; others wait before they submit. The tenant that has had the
 * least time for its weight goes next, and takes the turn from one that has had a quantum more. So a tenant that uses
 * little waits for one that uses much only until the work that is already on the card has ended, and vgx_gate.c bounds
 * that work.
 *
 * No locks: whoever wants a turn decides by what stands here, and takes it with one compare-and-swap. A worker that
 * ends leaves nothing held for longer than `starving_ns`. Times are CLOCK_MONOTONIC's. Workers are trusted with this no
 * less than with the card: one that a client has taken over can submit without a turn, or damage the file: vgx_gate.c
 * then stops waiting. */
#ifndef VGX_TURN_H
#define VGX_TURN_H

#include <stdbool.h>
#include <stdint.h>

#define VGX_TURN_DEVICES 16u
/* tenants with sessions at the same time; sessions of further tenants do not wait for turns */
#define VGX_TURN_TENANTS 64u
#define VGX_TURN_ROWS 1024u /* sessions, numbered as in the ledger */
#define VGX_TURN_UNIT 1000u /* for a tenant of this weight virtual time equals real time */

/* All members are atomic. */
struct vgx_turn_tenant {
  uint64_t used_ns;      /* how long it has had the turn */
  uint64_t virtual_ns;   /* the same, divided by its weight; the tenant with the least is next. Wraps around */
  uint64_t wants_ns;     /* when one of its sessions last waited for the turn */
  uint64_t submitted_ns; /* when it last submitted something in its turn */
};

struct vgx_turn_device {
  uint64_t turn;          /* a count of turns << 16 | the owner's number + 1; 0: no owner */
  uint64_t charged_ns;    /* up to when the turn's time has been charged */
  uint64_t virtual_ns;    /* virtual time of the tenant that has, or last had, the turn */
  uint64_t held_until_ns; /* a tenant that was starving keeps the turn until then */
  uint64_t alone;         /* number + 1 of the only tenant that submits, which needs no turn; 0: several submit */
  uint64_t looked_ns;     /* when `alone` was last determined */
  uint64_t zero[2];
  struct vgx_turn_tenant tenants[VGX_TURN_TENANTS];
};

/* A session's work on a device. */
struct vgx_turn_work {
  uint64_t ahead_ns; /* the time that it is expected to take; 0: no work */
  uint64_t since_ns; /* when ahead_ns was set */
};

struct vgx_turns {
  uint64_t tenant_count; /* tenants with sessions; with less than two, no turns are needed */
  /* vgpud's policy */
  uint64_t quantum_ns;  /* time that the tenant with less weight gets in a turn */
  uint64_t pause_ns;    /* how long a tenant without work keeps the turn, as it may submit more soon */
  uint64_t ahead_ns;    /* most work, in time, that a session queues on the card, unless it is one kernel */
  uint64_t starving_ns; /* a tenant that has waited for so long goes next */
  uint64_t alone_ns;    /* how long no other tenant has submitted when a tenant counts as alone */
  /* How many entries of the arrays below were ever used. */
  uint64_t tenants_used, rows_used;
  uint64_t weight[VGX_TURN_TENANTS];
  uint64_t tenant[VGX_TURN_ROWS]; /* number + 1 of the tenant of each session; 0: none */
  struct vgx_turn_device devices[VGX_TURN_DEVICES];
  struct vgx_turn_work work[VGX_TURN_ROWS][VGX_TURN_DEVICES];
};

/* A session on a device. */
struct vgx_turn_seat {
  struct vgx_turns *turns;
  uint32_t device, tenant, row;
};

/* Whether a tenant may submit without a turn, as no other uses the device. */
static inline bool vgx_turn_unneeded(const struct vgx_turn_seat *seat) {
  return __atomic_load_n(&seat->turns->tenant_count, __ATOMIC_RELAXED) < 2 ||
         __atomic_load_n(&seat->turns->devices[seat->device].alone, __ATOMIC_RELAXED) == seat->tenant + 1;
}

/* Whether the session may submit now; if possible this begins its tenant's turn. `since_ns`: when the session began to
 * wait; `now_ns` in the first call. If the answer is false the caller asks again soon. */
bool vgx_turn_ask(const struct vgx_turn_seat *seat, uint64_t now_ns, uint64_t since_ns);

/* Record that the session's work on the device is expected to take `ahead_ns` from now on; 0: it has none. */
void vgx_turn_expect(const struct vgx_turn_seat *seat, uint64_t ahead_ns, uint64_t now_ns);

/* The time at which the card is expected to finish the work that was queued before this turn; may be in the past. */
uint64_t vgx_turn_free(const struct vgx_turn_seat *seat);

/* End the tenant's turn if it has one and none of its sessions has work on the device. */
void vgx_turn_leave(const struct vgx_turn_seat *seat, uint64_t now_ns);

/* Map the file; it is never unmapped. NULL: it is not such a file, or memory is short. */
struct vgx_turns *vgx_turns_map(int fd);

#endif
