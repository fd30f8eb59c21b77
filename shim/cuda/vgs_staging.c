#include "vgs_staging.h"
#include "vgs_api.h"
#include "vgs_area.h"
#include "vgs_copiers.h"
#include "vgs_copy_past_cache.h"
#include "vgs_copy_pinned.h"
#include "vgs_order.h"
#include "vgs_stream.h"
#include <string.h>
#include <time.h>

enum {
  PIECE_LEAST = 64 << 10,
  HELPED_NBYTES = 2 << 20, /* waking a thread takes as long as copying a few hundred KiB */
  PATIENCE = 4000          /* polls of a word before a helper naps, or the caller asks the worker */
};

/* A copy under way. Piece p uses slot p % VGS_SLOTS. */
struct transfer {
  const struct vgs_staged *copy;
  struct vgs_area *area;
  uint64_t piece_nbytes;
  uint32_t pieces;
  uint32_t values[VGS_SLOTS]; /* flags before the first piece */
  uint32_t next;              /* atomic; the first piece that no thread copies yet */
  uint32_t issued;            /* atomic; pieces whose copies were sent */
  uint32_t copied[VGS_SLOTS]; /* atomic; 1 + the last piece copied by a thread, by slot */
  bool stop;                  /* atomic */
};

#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
#define STORE(place, value) __atomic_store_n(&(place), value, __ATOMIC_RELEASE)

/* The value of the slot's flag when the device has finished with piece `p`. Each use of a slot increments it and skips
 * 0. */
static uint32_t value_after(const struct transfer *t, uint32_t p) {
  uint32_t before = t->values[p % VGS_SLOTS], value = before + p / VGS_SLOTS + 1;
  return value <= before ? value + 1 : value;
}

/* Whether the slot's use before this transfer is over. */
static bool is_free(const struct transfer *t, uint32_t slot) {
  uint32_t by = t->area->by[slot];
  return vgs_area_is_set(t->area, by, t->values[by]);
}

static bool device_done(const struct transfer *t, uint32_t p) {
  return vgs_area_is_set(t->area, p % VGS_SLOTS, value_after(t, p));
}

/* To the device, a transfer that uses each slot once needs one flag, behind its last piece: a flag takes the worker as
 * long as half a piece. */
static bool is_flagged(const struct transfer *t, uint32_t p) {
  return t->copy->to_host || t->pieces > VGS_SLOTS || p + 1 == t->pieces;
}

static CUresult push_flag(struct transfer *t, uint32_t p) {
  uint32_t slot = p % VGS_SLOTS, first = t->copy->to_host || t->pieces > VGS_SLOTS ? slot : 0;
  CUresult result = vgs_wait_push_flag(t->area, slot, t->copy->stream);
  for (uint32_t each = first; each <= slot; each++)
    t->area->by[each] = (uint8_t)slot;
  return result;
}

/* Whether piece `p` can be copied: its slot is free (to the device), or the piece has arrived in it (to the host). */
static bool is_ready(const struct transfer *t, uint32_t p) {
  uint32_t slot = p % VGS_SLOTS;
  if (t->copy->to_host)
    return LOAD(t->issued) > p && device_done(t, p);
  if (p < VGS_SLOTS)
    return is_free(t, slot);
  return LOAD(t->issued) > p - VGS_SLOTS && device_done(t, p - VGS_SLOTS);
}

static void copy_piece(struct transfer *t, uint32_t p) {
  uint64_t offset = p * t->piece_nbytes, left = t->copy->nbytes - offset;
  uint64_t nbytes = left < t->piece_nbytes ? left : t->piece_nbytes;
  uint8_t *landing = vgs_area_landing(t->area, p % VGS_SLOTS);
  if (t->copy->to_host)
    memcpy(t->copy->host + offset, landing, nbytes);
  else
    vgs_copy_past_cache(landing, t->copy->host + offset, nbytes);
  STORE(t->copied[p % VGS_SLOTS], p + 1);
}

/* A helper thread: copies pieces in order, each as soon as it is ready. */
static void help(void *argument) {
  struct transfer *t = argument;
  uint32_t p;
  while ((p = __atomic_fetch_add(&t->next, 1, __ATOMIC_ACQ_REL)) < t->pieces) {
    for (unsigned looks = 0; !is_ready(t, p); looks++) {
      if (LOAD(t->stop))
        return;
      if (looks < PATIENCE)
        __builtin_ia32_pause();
      else
        nanosleep(&(struct timespec){0, 20000}, NULL);
    }
    copy_piece(t, p);
  }
}

/* Enqueue the device's copy of the next piece, if the state of its slot allows it. */
static CUresult issue(struct transfer *t, bool *progress) {
  const struct vgs_staged *copy = t->copy;
  uint32_t p = t->issued, slot = p % VGS_SLOTS;
  if (p == t->pieces)
    return CUDA_SUCCESS;
  if (copy->to_host) { /* the slot's last piece must have been copied out, and its older uses must be over */
    if (p < VGS_SLOTS ? !is_free(t, slot) : LOAD(t->copied[slot]) != p - VGS_SLOTS + 1)
      return CUDA_SUCCESS;
  } else if (LOAD(t->copied[slot]) != p + 1) {
    return CUDA_SUCCESS;
  }
  uint64_t offset = p * t->piece_nbytes, left = copy->nbytes - offset;
  uint64_t nbytes = left < t->piece_nbytes ? left : t->piece_nbytes;
  uint64_t landing = (uintptr_t)vgs_area_landing(t->area, slot), device = copy->device + offset;
  CUresult result = vgs_copy_pinned(copy->to_host, copy->to_host ? landing : device, copy->to_host ? device : landing,
                                    nbytes, copy->stream, copy->doubtful);
  if (!result && is_flagged(t, p))
    result = push_flag(t, p);
  if (!result) {
    STORE(t->issued, p + 1);
    *progress = true;
  }
  return result;
}

/* Copy one piece if the next one is ready; helpers wait for pieces that are not. */
static void lend_a_hand(struct transfer *t, bool *progress) {
  uint32_t p = LOAD(t->next);
  if (p >= t->pieces || !is_ready(t, p) ||
      !__atomic_compare_exchange_n(&t->next, &p, p + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return;
  copy_piece(t, p);
  *progress = true;
}

static bool is_over(const struct transfer *t) {
  if (t->issued < t->pieces)
    return false;
  for (uint32_t p = t->pieces < VGS_SLOTS ? 0 : t->pieces - VGS_SLOTS; p < t->pieces && t->copy->to_host; p++)
    if (LOAD(t->copied[p % VGS_SLOTS]) != p + 1)
      return false;
  return true;
}

/* Sleep until the stream that the next step depends on has finished, which also reports faults. A flag that is not set
 * then will never be: the call that was to set it has failed. */
static CUresult ask(struct transfer *t) {
  uint32_t slot = t->issued % VGS_SLOTS;
  if (t->issued < VGS_SLOTS && !is_free(t, slot)) { /* an older use of the slot */
    slot = t->area->by[slot];
    CUresult result = vgs_send_cuStreamSynchronize(t->area->streams[slot]);
    if (result == CUDA_ERROR_INVALID_HANDLE) /* the stream was destroyed meanwhile */
      result = vgs_send_cuCtxSynchronize();
    if (!result)
      STORE(*vgs_area_flag(t->area, slot), t->values[slot]);
    return result;
  }
  CUresult result = vgs_send_cuStreamSynchronize(t->copy->stream);
  for (uint32_t p = t->issued < VGS_SLOTS ? 0 : t->issued - VGS_SLOTS; p < t->issued && !result; p++)
    if (is_flagged(t, p) && !device_done(t, p))
      result = CUDA_ERROR_UNKNOWN;
  return result;
}

static CUresult drive(struct transfer *t) {
  CUresult result = CUDA_SUCCESS;
  unsigned idle = 0, patience = vgs_ring_spin_ns() ? PATIENCE : 1;
  while (!result && !is_over(t)) {
    bool progress = false, issued;
    do {
      issued = false;
      result = issue(t, &issued);
      progress |= issued;
    } while (!result && issued);
    lend_a_hand(t, &progress);
    if (progress || result) {
      idle = 0;
      continue;
    }
    __builtin_ia32_pause();
    if (++idle < patience)
      continue;
    idle = 0; /* the device has longer work to do, or a kernel has faulted */
    result = ask(t);
  }
  return result;
}

/* Whether another stream's copies still use a slot that the transfer needs. That stream may wait for what this thread
 * does next, so it is looked at for a while and never waited for. */
static bool is_held(const struct transfer *t) {
  unsigned patience = vgs_ring_spin_ns() ? PATIENCE : 1;
  bool held = true;
  for (unsigned looks = 0; held && looks < patience; looks++) {
    held = false;
    for (uint32_t slot = 0; slot < t->pieces && slot < VGS_SLOTS && !held; slot++)
      held = t->area->streams[t->area->by[slot]] != t->copy->stream && !is_free(t, slot);
    if (held)
      __builtin_ia32_pause();
  }
  return held;
}

CUresult vgs_staging_copy(const struct vgs_staged *copy, bool *taken) {
  struct vgs_area *area = vgs_area_acquire(VGS_AREA_STAGING);
  *taken = area;
  if (!area)
    return CUDA_SUCCESS;
  struct transfer t = {.copy = copy, .area = area};
  uint64_t piece = copy->nbytes / 8 & ~UINT64_C(4095);
  t.piece_nbytes = piece < PIECE_LEAST ? PIECE_LEAST : piece > VGS_SLOT_NBYTES ? VGS_SLOT_NBYTES : piece;
  t.pieces = (uint32_t)((copy->nbytes + t.piece_nbytes - 1) / t.piece_nbytes);
  memcpy(t.values, area->values, sizeof t.values);
  if (is_held(&t)) {
    *taken = false;
    vgs_area_release(area);
    return CUDA_SUCCESS;
  }
  bool helped = copy->nbytes >= HELPED_NBYTES && vgs_copiers_start(help, &t);
  CUresult result = drive(&t);
  if (result && t.issued && !is_flagged(&t, t.issued - 1)) /* the slots are used for other copies */
    push_flag(&t, t.issued - 1);
  STORE(t.stop, true);
  if (helped)
    vgs_copiers_wait();
  if (!result && copy->to_host) {
    uint64_t entry;
    if (vgs_ring_notice())
      result = vgs_send_cuStreamSynchronize(copy->stream);
    else if (copy->stream && vgs_order_is_last(copy->stream, &entry))
      vgs_touch_set_done(copy->stream, entry);
  }
  vgs_area_release(area);
  return result;
}

CUresult vgs_staging_pass(const struct vgs_staged *copy, bool *taken) {
  struct vgs_area *area = vgs_area_acquire(VGS_AREA_STAGING);
  *taken = false;
  if (!area)
    return CUDA_SUCCESS;
  struct transfer t = {.copy = copy, .area = area};
  uint32_t slot = area->next;
  memcpy(t.values, area->values, sizeof t.values);
  CUresult result = CUDA_SUCCESS;
  area->next = (slot + 1) % VGS_SLOTS; /* also past a slot that a blocked stream holds */
  if (is_free(&t, slot)) {
    *taken = true;
    uint8_t *landing = vgs_area_landing(area, slot);
    vgs_copy_past_cache(landing, copy->host, copy->nbytes);
    result = vgs_copy_pinned(false, copy->device, (uintptr_t)landing, copy->nbytes, copy->stream, copy->doubtful);
    area->by[slot] = (uint8_t)slot;
    if (!result)
      result = vgs_wait_push_flag(area, slot, copy->stream);
  }
  vgs_area_release(area);
  return result;
}

CUresult vgs_staging_land(const struct vgs_staged *copy, bool *taken) {
  struct vgs_area *area = vgs_area_acquire(VGS_AREA_SMALL);
  *taken = area;
  if (!area)
    return CUDA_SUCCESS;
  uint8_t *landing = vgs_area_landing(area, 0);
  CUresult result = vgs_copy_pinned(true, (uintptr_t)landing, copy->device, copy->nbytes, copy->stream, copy->doubtful);
  if (!result)
    result = vgs_wait_stream_with(area, copy->stream);
  if (!result)
    memcpy(copy->host, landing, copy->nbytes);
  vgs_area_release(area);
  return result;
}
