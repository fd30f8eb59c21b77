#include "vgx_charge.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "vgw_ledger.h"

enum { BUCKETS = 16384 };

/* Bytes of a device that one entry has, or several: physical memory and its mappings. */
struct bytes {
  CUdevice device;
  uint64_t nbytes;
  uint32_t refs;
};

struct vgx_charge_entry {
  struct vgx_charge_entry *next;
  struct bytes *of;
  uint64_t key, span;
  CUcontext context;
  enum vgx_charge_kind kind;
  bool is_ending; /* its context is being destroyed */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows but `config` */
static struct vgx_charge_entry *buckets[BUCKETS];
static uint64_t used[VGW_SIMULATED_DEVICES_MAX]; /* by the driver's number of a device */
static uint64_t of_graphs[VGW_SIMULATED_DEVICES_MAX], other[VGW_SIMULATED_DEVICES_MAX];
static pthread_rwlock_t allocating = PTHREAD_RWLOCK_INITIALIZER;
static struct {
  struct vgw_ledger *ledger;
  uint32_t row, count;
  uint64_t limit_nbytes;
  uint8_t numbers[VGW_SIMULATED_DEVICES_MAX]; /* the device's among the host's */
} config;                                     /* constant once set */

void vgx_charge_init(struct vgw_ledger *ledger, uint32_t row, uint64_t limit_nbytes, const uint8_t *host_devices,
                     uint32_t count) {
  config.ledger = ledger;
  config.row = row;
  config.limit_nbytes = limit_nbytes;
  config.count = count < VGW_SIMULATED_DEVICES_MAX ? count : VGW_SIMULATED_DEVICES_MAX;
  for (uint32_t i = 0; i < config.count; i++)
    config.numbers[i] = host_devices[i];
}

bool vgx_charge_is_device(CUdevice device) { return device >= 0 && (uint32_t)device < config.count; }

uint64_t vgx_charge_limit(void) { return config.limit_nbytes; }

/* --- sums --- */

static void publish_locked(CUdevice device) {
  __atomic_store_n(&config.ledger->used[config.row][config.numbers[device]], used[device] + other[device],
                   __ATOMIC_SEQ_CST);
}

int64_t vgx_charge_room(CUdevice device) {
  int64_t of_tenant;
  if (!vgx_charge_is_device(device))
    return 0;
  vgw_ledger_sum(config.ledger, config.numbers[device], config.row, &of_tenant);
  return vgw_ledger_capped(config.limit_nbytes) - of_tenant;
}

uint64_t vgx_charge_used(uint32_t device) {
  pthread_mutex_lock(&lock);
  uint64_t nbytes = device < VGW_SIMULATED_DEVICES_MAX ? used[device] + other[device] : 0;
  pthread_mutex_unlock(&lock);
  return nbytes;
}

bool vgx_charge_reserve(CUdevice device, uint64_t nbytes) {
  if (!vgx_charge_is_device(device) || nbytes > config.limit_nbytes)
    return false;
  pthread_mutex_lock(&lock);
  used[device] += nbytes;
  publish_locked(device);
  bool fits = vgx_charge_room(device) >= 0;
  if (!fits) {
    used[device] -= nbytes;
    publish_locked(device);
  }
  pthread_mutex_unlock(&lock);
  return fits;
}

void vgx_charge_change(CUdevice device, uint64_t from_nbytes, uint64_t to_nbytes) {
  if (!vgx_charge_is_device(device) || from_nbytes == to_nbytes)
    return;
  pthread_mutex_lock(&lock);
  used[device] += to_nbytes - from_nbytes;
  publish_locked(device);
  pthread_mutex_unlock(&lock);
}

uint64_t vgx_charge_other(CUdevice device) {
  pthread_mutex_lock(&lock);
  uint64_t nbytes = vgx_charge_is_device(device) ? other[device] : 0;
  pthread_mutex_unlock(&lock);
  return nbytes;
}

void vgx_charge_set_other(CUdevice device, uint64_t nbytes) {
  if (!vgx_charge_is_device(device))
    return;
  pthread_mutex_lock(&lock);
  other[device] = nbytes;
  publish_locked(device);
  pthread_mutex_unlock(&lock);
}

uint64_t vgx_charge_counted(CUdevice device, uint64_t *graphs) {
  pthread_mutex_lock(&lock);
  uint64_t nbytes = vgx_charge_is_device(device) ? used[device] : 0;
  *graphs = vgx_charge_is_device(device) ? of_graphs[device] : 0;
  pthread_mutex_unlock(&lock);
  return nbytes;
}

void vgx_charge_begin(void) { pthread_rwlock_rdlock(&allocating); }

void vgx_charge_finish(void) { pthread_rwlock_unlock(&allocating); }

bool vgx_charge_exclude(uint32_t patience_ms) {
  const struct timespec pause = {0, 1000000};
  int result = pthread_rwlock_trywrlock(&allocating);
  for (uint32_t i = 0; result != 0 && i < patience_ms; i++) {
    nanosleep(&pause, NULL);
    result = pthread_rwlock_trywrlock(&allocating);
  }
  return result == 0;
}

void vgx_charge_include(void) { pthread_rwlock_unlock(&allocating); }

/* --- entries --- */

static struct vgx_charge_entry **find_locked(enum vgx_charge_kind kind, uint64_t key) {
  uint64_t hash = (key ^ (uint64_t)kind << 60) * 0x9e3779b97f4a7c15ull;
  struct vgx_charge_entry **at = &buckets[hash >> 50];
  while (*at && ((*at)->key != key || (*at)->kind != kind))
    at = &(*at)->next;
  return at;
}
_Static_assert(BUCKETS == 1 << (64 - 50), "find_locked() takes the upper bits");

static void drop_locked(struct vgx_charge_entry *entry) {
  struct bytes *of = entry->of;
  if (--of->refs == 0) {
    used[of->device] -= of->nbytes;
    of_graphs[of->device] -= entry->kind == VGX_CHARGE_GRAPH ? of->nbytes : 0;
    publish_locked(of->device);
    free(of);
  }
  free(entry);
}

static void remove_locked(struct vgx_charge_entry **at) {
  struct vgx_charge_entry *entry = *at;
  *at = entry->next;
  drop_locked(entry);
}

/* The driver does not give a key out twice: an entry that has it is of something that ended without a call. */
static void replace_locked(struct vgx_charge_entry *made) {
  struct vgx_charge_entry **at = find_locked(made->kind, made->key);
  if (*at)
    remove_locked(at);
  at = find_locked(made->kind, made->key);
  made->next = *at;
  *at = made;
}

bool vgx_charge_add(enum vgx_charge_kind kind, uint64_t key, CUdevice device, uint64_t nbytes, CUcontext context) {
  struct bytes *of = malloc(sizeof *of);
  struct vgx_charge_entry *made = malloc(sizeof *made);
  if (!of || !made || !vgx_charge_is_device(device)) {
    free(of);
    free(made);
    return false;
  }
  *of = (struct bytes){device, nbytes, 1};
  *made = (struct vgx_charge_entry){.of = of, .key = key, .context = context, .kind = kind};
  pthread_mutex_lock(&lock);
  of_graphs[device] += kind == VGX_CHARGE_GRAPH ? nbytes : 0;
  replace_locked(made);
  pthread_mutex_unlock(&lock);
  return true;
}

bool vgx_charge_map(uint64_t address, uint64_t span, uint64_t handle) {
  struct vgx_charge_entry *made = malloc(sizeof *made);
  if (!made)
    return false;
  pthread_mutex_lock(&lock);
  struct vgx_charge_entry *physical = *find_locked(VGX_CHARGE_PHYSICAL, handle);
  if (physical) {
    *made = (struct vgx_charge_entry){.of = physical->of, .key = address, .span = span, .kind = VGX_CHARGE_MAPPING};
    physical->of->refs++;
    replace_locked(made);
  }
  pthread_mutex_unlock(&lock);
  if (!physical) /* another session's: imported, and counted there */
    free(made);
  return true;
}

bool vgx_charge_has(enum vgx_charge_kind kind, uint64_t key) {
  pthread_mutex_lock(&lock);
  bool has = *find_locked(kind, key);
  pthread_mutex_unlock(&lock);
  return has;
}

struct vgx_charge_entry *vgx_charge_take(enum vgx_charge_kind kind, uint64_t key) {
  pthread_mutex_lock(&lock);
  struct vgx_charge_entry **at = find_locked(kind, key), *entry = *at;
  if (entry)
    *at = entry->next;
  pthread_mutex_unlock(&lock);
  return entry;
}

uint64_t vgx_charge_entry_nbytes(const struct vgx_charge_entry *entry) { return entry ? entry->of->nbytes : 0; }

CUdevice vgx_charge_entry_device(const struct vgx_charge_entry *entry) { return entry->of->device; }

void vgx_charge_end(struct vgx_charge_entry *entry, bool done) {
  if (!entry)
    return;
  pthread_mutex_lock(&lock);
  if (done)
    drop_locked(entry);
  else
    replace_locked(entry);
  pthread_mutex_unlock(&lock);
}

uint64_t vgx_charge_nbytes(enum vgx_charge_kind kind, uint64_t key) {
  pthread_mutex_lock(&lock);
  const struct vgx_charge_entry *entry = *find_locked(kind, key);
  uint64_t nbytes = entry ? entry->of->nbytes : 0;
  pthread_mutex_unlock(&lock);
  return nbytes;
}

void vgx_charge_unmap(uint64_t address, uint64_t span) {
  pthread_mutex_lock(&lock);
  struct vgx_charge_entry **first = find_locked(VGX_CHARGE_MAPPING, address);
  if (*first && (*first)->span == span) {
    remove_locked(first);
  } else {
    for (uint32_t i = 0; i < BUCKETS; i++)
      for (struct vgx_charge_entry **at = &buckets[i]; *at;)
        if ((*at)->kind == VGX_CHARGE_MAPPING && (*at)->key - address < span)
          remove_locked(at);
        else
          at = &(*at)->next;
  }
  pthread_mutex_unlock(&lock);
}

static bool has_owner(enum vgx_charge_kind kind) {
  return kind == VGX_CHARGE_ADDRESS || kind == VGX_CHARGE_ARRAY || kind == VGX_CHARGE_MIPMAP || kind == VGX_CHARGE_HEAP;
}

void vgx_charge_take_of(CUcontext context, CUdevice device) {
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < BUCKETS; i++)
    for (struct vgx_charge_entry *entry = buckets[i]; entry; entry = entry->next)
      entry->is_ending |= has_owner(entry->kind) && entry->context == context && entry->of->device == device;
  pthread_mutex_unlock(&lock);
}

void vgx_charge_end_of(CUcontext context, CUdevice device, bool (*gone)(enum vgx_charge_kind kind, uint64_t key)) {
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < BUCKETS; i++)
    for (struct vgx_charge_entry **at = &buckets[i]; *at;) {
      struct vgx_charge_entry *entry = *at;
      bool ends = entry->is_ending && entry->context == context && entry->of->device == device;
      if (ends && gone && gone(entry->kind, entry->key)) {
        remove_locked(at);
      } else {
        entry->is_ending &= !ends;
        at = &entry->next;
      }
    }
  pthread_mutex_unlock(&lock);
}
