/* Turns of tenants on a card. Virtual times are compared by their difference, because they wrap around. */
#include "vgx_turn.h"

#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { TENANT_BITS = 16, FRESH_NS = 2000000 }; /* a waiting tenant renews its request at shorter intervals */
#define BEHIND_MOST 2                          /* quanta that a tenant may lag behind when it begins to wait */

static uint64_t get(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }
static void set(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_SEQ_CST); }

static uint32_t used(const uint64_t *word, uint32_t most) {
  uint64_t count = get(word);
  return count < most ? (uint32_t)count : most;
}

static uint64_t weight_of(const struct vgx_turns *turns, uint32_t tenant) {
  uint64_t weight = get(&turns->weight[tenant]);
  return weight ? weight : 1;
}

static int64_t difference(uint64_t one, uint64_t two) { return (int64_t)(one - two); }

/* The number + 1 of the tenant that owns the turn; 0: no owner, or a number that no tenant has. */
static uint32_t owner_of(uint64_t turn) {
  uint32_t owner = (uint32_t)(turn & ((1u << TENANT_BITS) - 1));
  return owner <= VGX_TURN_TENANTS ? owner : 0;
}

/* Charge the tenant whose turn it is for the time since the last charge. */
static void charge(struct vgx_turns *turns, struct vgx_turn_device *device, uint64_t now_ns) {
  uint32_t owner = owner_of(get(&device->turn));
  uint64_t from = get(&device->charged_ns);
  if (difference(now_ns, from) <= 0 ||
      !__atomic_compare_exchange_n(&device->charged_ns, &from, now_ns, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) ||
      !owner)
    return;
  struct vgx_turn_tenant *tenant = &device->tenants[owner - 1];
  uint64_t took = now_ns - from;
  __atomic_fetch_add(&tenant->used_ns, took, __ATOMIC_SEQ_CST);
  set(&device->virtual_ns,
      __atomic_add_fetch(&tenant->virtual_ns, took * VGX_TURN_UNIT / weight_of(turns, owner - 1), __ATOMIC_SEQ_CST));
}

/* How far one tenant may be ahead of another in virtual time: half a quantum of the tenant with less weight. Turns take
 * a tenant from that far behind to that far ahead. */
static int64_t lead(const struct vgx_turns *turns, uint32_t one, uint32_t two) {
  uint64_t weight = weight_of(turns, one), other = weight_of(turns, two);
  return (int64_t)(get(&turns->quantum_ns) * VGX_TURN_UNIT / (weight < other ? weight : other) / 2);
}

/* The waiting tenant with the least virtual time, other than `but`; VGX_TURN_TENANTS: none waits. */
static uint32_t next_waiting(const struct vgx_turns *turns, const struct vgx_turn_device *device, uint32_t but,
                             uint64_t now_ns) {
  uint32_t found = VGX_TURN_TENANTS, count = used(&turns->tenants_used, VGX_TURN_TENANTS);
  for (uint32_t i = 0; i < count; i++) {
    uint64_t wants = get(&device->tenants[i].wants_ns);
    if (i == but || !wants || difference(now_ns, wants) > FRESH_NS)
      continue;
    if (found == VGX_TURN_TENANTS ||
        difference(get(&device->tenants[i].virtual_ns), get(&device->tenants[found].virtual_ns)) < 0)
      found = i;
  }
  return found;
}

/* When all work that a tenant's sessions have on the device is expected to be done, one session after another; 0: they
 * have none. */
static uint64_t work_of(const struct vgx_turns *turns, uint32_t device, uint32_t tenant, uint64_t now_ns) {
  uint64_t ahead = 0, since = 0;
  uint32_t count = used(&turns->rows_used, VGX_TURN_ROWS);
  for (uint32_t row = 0; row < count; row++)
    if (get(&turns->tenant[row]) == tenant + 1) {
      const struct vgx_turn_work *work = &turns->work[row][device];
      uint64_t of_row = get(&work->ahead_ns), changed = get(&work->since_ns);
      ahead += of_row;
      since = of_row && changed > since ? changed : since;
    }
  if (!ahead)
    return 0;
  return since + ahead > now_ns ? since + ahead : now_ns;
}

/* Note whether this tenant is alone: no other one has submitted or waited for `alone_ns`. */
static void look_for_others(const struct vgx_turn_seat *seat, struct vgx_turn_device *device, uint64_t now_ns) {
  uint64_t alone_ns = get(&seat->turns->alone_ns), alone = get(&device->alone);
  if (alone && alone != seat->tenant + 1)
    set(&device->alone, 0);
  if (difference(now_ns, get(&device->looked_ns)) < (int64_t)(alone_ns / 8))
    return;
  set(&device->looked_ns, now_ns);
  uint32_t count = used(&seat->turns->tenants_used, VGX_TURN_TENANTS);
  for (uint32_t i = 0; i < count; i++) {
    uint64_t submitted = get(&device->tenants[i].submitted_ns), wants = get(&device->tenants[i].wants_ns);
    uint64_t last = submitted > wants ? submitted : wants;
    if (i != seat->tenant && last && difference(now_ns, last) < (int64_t)alone_ns)
      return;
  }
  set(&device->alone, seat->tenant + 1);
}

/* Whether the tenant that owns the turn keeps it: no other tenant is due. If so, records that it submits. */
static bool goes_on(const struct vgx_turn_seat *seat, struct vgx_turn_device *device, uint64_t now_ns) {
  struct vgx_turn_tenant *me = &device->tenants[seat->tenant];
  uint32_t other = next_waiting(seat->turns, device, seat->tenant, now_ns);
  charge(seat->turns, device, now_ns);
  if (other != VGX_TURN_TENANTS && difference(now_ns, get(&device->held_until_ns)) >= 0 &&
      difference(get(&me->virtual_ns), get(&device->tenants[other].virtual_ns)) >=
          lead(seat->turns, seat->tenant, other))
    return false;
  set(&me->submitted_ns, now_ns);
  return true;
}

/* Whether a waiting tenant may take the turn from `owner` (number + 1; 0: there is no owner). */
static bool is_due(const struct vgx_turn_seat *seat, const struct vgx_turn_device *device, uint32_t owner,
                   uint64_t now_ns) {
  uint64_t mine = get(&device->tenants[seat->tenant].virtual_ns);
  uint32_t rival = next_waiting(seat->turns, device, seat->tenant, now_ns);
  if (rival != VGX_TURN_TENANTS && rival + 1 != owner && difference(get(&device->tenants[rival].virtual_ns), mine) < 0)
    return false;
  if (!owner)
    return true;
  if (difference(now_ns, get(&device->held_until_ns)) < 0 ||
      difference(get(&device->tenants[owner - 1].virtual_ns), mine) < lead(seat->turns, owner - 1, seat->tenant))
    return false;
  /* Taking the turn while short work is still on the card delays this tenant less than waiting for that work to end. */
  return difference(work_of(seat->turns, seat->device, owner - 1, now_ns),
                    now_ns + get(&seat->turns->quantum_ns) / 2) <= 0;
}

bool vgx_turn_ask(const struct vgx_turn_seat *seat, uint64_t now_ns, uint64_t since_ns) {
  struct vgx_turns *turns = seat->turns;
  struct vgx_turn_device *device = &turns->devices[seat->device];
  struct vgx_turn_tenant *me = &device->tenants[seat->tenant];
  uint64_t turn = get(&device->turn);
  uint32_t owner = owner_of(turn);
  look_for_others(seat, device, now_ns);
  if (owner == seat->tenant + 1)
    return goes_on(seat, device, now_ns);
  charge(turns, device, now_ns);
  if (now_ns == since_ns) { /* an idle tenant saves up no more time than it needs to be next */
    int64_t most = BEHIND_MOST * lead(turns, owner ? owner - 1 : seat->tenant, seat->tenant);
    if (difference(get(&device->virtual_ns), get(&me->virtual_ns)) > most)
      set(&me->virtual_ns, get(&device->virtual_ns) - (uint64_t)most);
  }
  set(&me->wants_ns, now_ns);
  bool starving = difference(now_ns, since_ns) > (int64_t)get(&turns->starving_ns) &&
                  difference(now_ns, get(&device->held_until_ns)) >= 0;
  if (!starving && !is_due(seat, device, owner, now_ns))
    return false;
  if (owner) { /* the work that it leaves on the card is charged to it, too */
    uint64_t until = work_of(turns, seat->device, owner - 1, now_ns), most = now_ns + get(&turns->quantum_ns);
    charge(turns, device, until > most ? most : until > now_ns ? until : now_ns);
  }
  uint64_t mine = ((turn >> TENANT_BITS) + 1) << TENANT_BITS | (seat->tenant + 1);
  if (!__atomic_compare_exchange_n(&device->turn, &turn, mine, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
    return false;
  if (starving)
    set(&device->held_until_ns, now_ns + get(&turns->quantum_ns));
  set(&device->virtual_ns, get(&me->virtual_ns));
  set(&me->wants_ns, 0);
  set(&me->submitted_ns, now_ns);
  return true;
}

void vgx_turn_expect(const struct vgx_turn_seat *seat, uint64_t ahead_ns, uint64_t now_ns) {
  struct vgx_turn_work *work = &seat->turns->work[seat->row][seat->device];
  set(&work->since_ns, now_ns);
  set(&work->ahead_ns, ahead_ns);
}

uint64_t vgx_turn_free(const struct vgx_turn_seat *seat) { return get(&seat->turns->devices[seat->device].charged_ns); }

void vgx_turn_leave(const struct vgx_turn_seat *seat, uint64_t now_ns) {
  struct vgx_turn_device *device = &seat->turns->devices[seat->device];
  uint64_t turn = get(&device->turn);
  if (owner_of(turn) != seat->tenant + 1 || work_of(seat->turns, seat->device, seat->tenant, now_ns))
    return;
  charge(seat->turns, device, now_ns);
  uint64_t nobody = turn >> TENANT_BITS << TENANT_BITS;
  __atomic_compare_exchange_n(&device->turn, &turn, nobody, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

struct vgx_turns *vgx_turns_map(int fd) {
  struct stat st;
  if (fstat(fd, &st) != 0 || (uint64_t)st.st_size < sizeof(struct vgx_turns))
    return NULL;
  void *at = mmap(NULL, sizeof(struct vgx_turns), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? NULL : at;
}
