/* How tenants share a card by weight: the file that vgpud makes (vgpud/tenancy/turns.py) and the workers of all tenants
 * map. A card has at most one tenant whose turn it is; others wait before they submit. The tenant that has had least
 * for its weight goes next, and takes the turn from one that has had a quantum more. So one that uses little is never
 * held up by one that uses all, but for the work that is already on the card, of which vgx_gate.c bounds the amount.
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
#define VGX_TURN_TENANTS 64u /* that have sessions at the same time; sessions of more tenants do not wait for turns */
#define VGX_TURN_ROWS 1024u  /* sessions, numbered as in the ledger */
#define VGX_TURN_UNIT 1000u  /* a tenant of this weight has as much virtual time as time */

/* All members are atomic. */
struct vgx_turn_tenant {
  uint64_t used_ns;      /* how long it has had the turn */
  uint64_t virtual_ns;   /* the same, divided by its weight; less than others': it is next. Wraps around */
  uint64_t wants_ns;     /* when one of its sessions last waited for the turn */
  uint64_t submitted_ns; /* when it last submitted something in its turn */
};

struct vgx_turn_device {
  uint64_t turn;          /* whose it is: a count of turns << 16 | the tenant's number + 1; 0: nobody's */
  uint64_t charged_ns;    /* until when the turn's time has been counted */
  uint64_t virtual_ns;    /* of the tenant that has, or had last, the turn */
  uint64_t held_until_ns; /* a tenant that was starving is left alone until then */
  uint64_t alone;         /* number + 1 of the one tenant that submits, and needs no turn; 0: there are several */
  uint64_t looked_ns;     /* when it was last looked whether there is one alone */
  uint64_t zero[2];
  struct vgx_turn_tenant tenants[VGX_TURN_TENANTS];
};

/* What a session has on a device. */
struct vgx_turn_work {
  uint64_t ahead_ns; /* the time that it is expected to take; 0: there is nothing */
  uint64_t since_ns; /* when that was so */
};

struct vgx_turns {
  uint64_t tenant_count; /* that have sessions; with less than two nobody needs a turn */
  /* vgpud's policy */
  uint64_t quantum_ns;  /* what the tenant of less weight gets in a turn */
  uint64_t pause_ns;    /* how long a tenant without work keeps the turn: what it submits next follows closely */
  uint64_t ahead_ns;    /* of work that a session has on the card; more if that is one kernel */
  uint64_t starving_ns; /* whoever has waited for so long goes next */
  uint64_t alone_ns;    /* for which others submit nothing until a tenant counts as alone */
  /* How many of the places below were ever used. */
  uint64_t tenants_used, rows_used;
  uint64_t weight[VGX_TURN_TENANTS];
  uint64_t tenant[VGX_TURN_ROWS]; /* number + 1 of the tenant of each session; 0: none */
  struct vgx_turn_device devices[VGX_TURN_DEVICES];
  struct vgx_turn_work work[VGX_TURN_ROWS][VGX_TURN_DEVICES];
};

/* A session at a device. */
struct vgx_turn_seat {
  struct vgx_turns *turns;
  uint32_t device, tenant, row;
};

/* Whether a tenant may submit without a turn, as no other uses the device. */
static inline bool vgx_turn_unneeded(const struct vgx_turn_seat *seat) {
  return __atomic_load_n(&seat->turns->tenant_count, __ATOMIC_RELAXED) < 2 ||
         __atomic_load_n(&seat->turns->devices[seat->device].alone, __ATOMIC_RELAXED) == seat->tenant + 1;
}

/* Whether the session may submit now; its turn begins if it can. `since_ns`: when it began to wait; `now_ns` at first.
 * The caller asks again soon. */
bool vgx_turn_ask(const struct vgx_turn_seat *seat, uint64_t now_ns, uint64_t since_ns);

/* What the session has on the device is expected to take `ahead_ns` from now on; 0: it has nothing there. */
void vgx_turn_expect(const struct vgx_turn_seat *seat, uint64_t ahead_ns, uint64_t now_ns);

/* When the card is expected to have done what was there as the turn began, or before. */
uint64_t vgx_turn_free(const struct vgx_turn_seat *seat);

/* The tenant's turn ends if it has one and no session of it has work on the device. */
void vgx_turn_leave(const struct vgx_turn_seat *seat, uint64_t now_ns);

/* Map the file; it is never unmapped. NULL: it is not such a file, or memory is short. */
struct vgx_turns *vgx_turns_map(int fd);

#endif
