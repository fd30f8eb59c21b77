/* The sanitizer's reports of accesses, and what it looks at of each lane's. */
#include "vgx_sim_watch_lane.h"

#include <stdio.h>
#include <string.h>

#include "vgx_sim_watch_cta.h"
#include "vgx_sim_watch_memory.h"
#include "vgx_sim_watch_report.h"
#include "vgx_sim_watch_turn.h"

static const char *const spaces[] = {"global", "shared", "local", "param", "host"};
static const char *const kinds[] = {"read", "write", "atomic", "read", "write", "atomic"};

static void put_where(const struct vgx_sim_watch *watch, struct vgx_sim_report *r, uint64_t address) {
  struct vgx_sim_placed a;
  struct vgx_sim_range gone;
  bool near = watch->look(address, &a);
  if (vgx_sim_find_freed(address, &gone) && !(near && address >= a.address && address - a.address < a.nbytes)) {
    vgx_sim_report_number(r, "freed", gone.address);
    vgx_sim_report_number(r, "freed_nbytes", gone.nbytes);
    vgx_sim_report_stack(r, "allocated_by", gone.allocated_by);
    vgx_sim_report_stack(r, "freed_by", gone.freed_by);
  } else if (near) {
    vgx_sim_report_number(r, "allocation", a.address);
    vgx_sim_report_number(r, "allocation_nbytes", a.nbytes);
    vgx_sim_report_stack(r, "allocated_by", vgx_sim_watch_allocated_by(a.address));
  }
}

/* Report a wrong access. If wrong accesses end the launch, the first one is its error. */
void vgx_sim_report_access(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread, const char *kind,
                           const struct vgx_sim_lane_access *a) {
  struct vgx_sim_report r;
  struct vgx_sim_finding *f = &watch->finding;
  bool misaligned = strcmp(kind, "misaligned") == 0;
  vgx_sim_watch_take_turn(watch, thread);
  if (strcmp(kind, "uninitialised") != 0 && !f->found) {
    f->found = true;
    f->address = a->address;
    f->warp = thread->warp;
    f->thread = thread->warp * 32 + a->lane;
    memcpy(f->cta, thread->cta, sizeof f->cta);
    snprintf(f->text, sizeof f->text, "%s%s of %u bytes by `%s` (%s)", misaligned ? "misaligned " : "",
             kinds[a->site->kind], a->nbytes, a->site->text, a->site->place);
  }
  watch->error_count++;
  if (watch->pages /* this run only locates a fault */ || !vgx_sim_report_admits(watch, a->site))
    return;
  vgx_sim_report_begin(&r, kind, watch);
  vgx_sim_report_text(&r, "space", spaces[vgx_sim_space_of(a->address)]);
  vgx_sim_report_text(&r, "access", kinds[a->site->kind]);
  vgx_sim_report_text(&r, "text", a->site->text);
  vgx_sim_report_text(&r, "place", a->site->place);
  vgx_sim_report_number(&r, "nbytes", a->nbytes);
  vgx_sim_report_number(&r, "address", a->address);
  vgx_sim_report_place(&r, watch, thread, a->lane);
  put_where(watch, &r, a->address);
  vgx_sim_report_end(&r, watch->log);
}

static struct vgx_sim_lane_access *loads_of(const struct vgx_sim_cta_watch *cta, uint32_t warp, uint32_t lane) {
  return &cta->unset[(warp % VGX_SIM_WARPS_MAX * 32 + lane) * VGX_SIM_UNSET_LOADS];
}

/* The thread's last load of unset bytes, or the last one that the use names. NULL: none. */
static struct vgx_sim_lane_access *find_load(struct vgx_sim_lane_access *loads, const struct vgx_sim_site *use) {
  for (uint32_t i = 0; i < VGX_SIM_UNSET_LOADS && loads[i].site; i++) {
    if (!use || !use->row_count)
      return &loads[i];
    for (uint32_t k = 0; k < use->row_count; k++)
      if ((uint32_t)use->rows[k].offset == loads[i].site->line)
        return &loads[i];
  }
  return NULL;
}

/* Report that a thread uses what a load of unset bytes has read, once for each such load. */
void vgx_sim_report_unset(struct vgx_sim_watch *watch, struct vgx_sim_cta_watch *cta,
                          const struct vgx_sim_thread *thread, uint32_t lane, const struct vgx_sim_site *use) {
  if (!cta || !cta->some_unset)
    return;
  struct vgx_sim_lane_access *a = find_load(loads_of(cta, thread->warp, lane), use);
  for (uint32_t other = 0; !a && other < 32; other++) /* the value comes from another lane */
    a = find_load(loads_of(cta, thread->warp, other), use);
  if (!a && use) {
    vgx_sim_report_unset(watch, cta, thread, lane, NULL); /* those that it names are no longer known */
    return;
  }
  if (a && a->nbytes)
    vgx_sim_report_access(watch, thread, "uninitialised", a);
  if (a)
    a->nbytes = 0;
}

static void add_load(struct vgx_sim_lane_access *loads, const struct vgx_sim_lane_access *a) {
  uint32_t place = 0;
  while (place < VGX_SIM_UNSET_LOADS - 1 && loads[place].site && loads[place].site != a->site)
    place++;
  memmove(&loads[1], &loads[0], place * sizeof *loads);
  loads[0] = *a;
}

/* A lane's access of shared memory: what it reads of unset bytes is reported, or, if the kernel tracks it, remembered;
 * what it stores of them stays unset. Returns whether it reads none, or tracks them. */
static bool check_shared(struct vgx_sim_watch *watch, struct vgx_sim_cta_watch *cta,
                         const struct vgx_sim_thread *thread, const struct vgx_sim_lane_access *a, uint64_t offset) {
  uint32_t unset = 0;
  for (uint32_t i = 0; i < a->nbytes; i++)
    unset |= (uint32_t)(cta->shared_defined[offset + i] == 0) << i % 32;
  if (vgx_sim_site_writes(a->site))
    vgx_sim_define_shared(cta, offset, a->nbytes);
  for (uint32_t left = watch->services->stores_unset ? watch->services->unset_stored[a->lane] : 0; left;
       left &= left - 1) {
    uint32_t i = (uint32_t)__builtin_ctz(left);
    if (i < a->nbytes && vgx_sim_site_writes(a->site)) {
      cta->undefined_nbytes += cta->shared_defined[offset + i];
      cta->shared_defined[offset + i] = 0;
    }
  }
  if (!unset || !a->site->tracked || !cta->unset)
    return !unset;
  watch->services->unset_read[a->lane] = unset;
  add_load(loads_of(cta, thread->warp, a->lane), a);
  cta->some_unset = true;
  return true;
}

/* Report reads of bytes that were never written; mark written bytes as defined. */
void vgx_sim_check_defined(struct vgx_sim_watch *watch, struct vgx_sim_cta_watch *cta,
                           const struct vgx_sim_thread *thread, const struct vgx_sim_lane_access *a) {
  enum vgx_sim_space space = vgx_sim_space_of(a->address);
  bool defined = true;
  uint64_t offset = a->address - (uint64_t)thread->shared;
  if (space == VGX_SIM_IN_SHARED && cta && cta->shared_defined && offset + a->nbytes <= cta->shared_nbytes) {
    defined = check_shared(watch, cta, thread, a, offset);
  } else if (space == VGX_SIM_IN_GLOBAL && watch->tools & VGX_SIM_INITCHECK) {
    defined = !vgx_sim_site_reads(a->site) || vgx_sim_is_defined(a->address, a->nbytes);
    if (vgx_sim_site_writes(a->site))
      vgx_sim_watch_defined(a->address, a->nbytes);
  }
  if (vgx_sim_site_reads(a->site) && !defined)
    vgx_sim_report_access(watch, thread, "uninitialised", a);
  if (space != VGX_SIM_IN_SHARED && watch->services->stores_unset && watch->services->unset_stored[a->lane] &&
      vgx_sim_site_writes(a->site))
    vgx_sim_report_unset(watch, cta, thread, a->lane, NULL);
}

/* Lanes of one store that write different values to one place. */
void vgx_sim_check_lanes(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread,
                         const struct vgx_sim_lane_access *lanes, uint32_t count) {
  struct vgx_sim_report r;
  for (uint32_t i = 1; i < count; i++) {
    const struct vgx_sim_lane_access *a = &lanes[i];
    for (uint32_t k = 0; k < i; k++)
      if (lanes[k].address == a->address && memcmp(lanes[k].value, a->value, a->nbytes) != 0) {
        vgx_sim_watch_take_turn(watch, thread);
        watch->error_count++;
        if (!vgx_sim_report_admits(watch, a->site))
          return;
        vgx_sim_report_begin(&r, "race", watch);
        vgx_sim_report_text(&r, "hazard", "write-after-write");
        vgx_sim_report_text(&r, "space", spaces[vgx_sim_space_of(a->address)]);
        vgx_sim_report_text(&r, "access", "write");
        vgx_sim_report_text(&r, "text", a->site->text);
        vgx_sim_report_text(&r, "place", a->site->place);
        vgx_sim_report_number(&r, "nbytes", a->nbytes);
        vgx_sim_report_number(&r, "address", a->address);
        vgx_sim_report_place(&r, watch, thread, a->lane);
        vgx_sim_report_text(&r, "before", "write");
        vgx_sim_report_text(&r, "before_place", a->site->place);
        vgx_sim_report_end(&r, watch->log);
        return;
      }
  }
}
