/* The state of green contexts, which queues and launches read. Locking: the runtime lock; a green context's set of
 * multiprocessors does not change. */
#include "vgx_sim_green.h"

#include "vgx_sim_marker.h"
#include "vgx_sim_runtime.h"

bool vgx_sim_green_has(const struct vgx_sim_multiprocessors *set, uint32_t i) {
  return set->words[i / 64] >> i % 64 & 1;
}

uint32_t vgx_sim_green_size(const struct vgx_sim_multiprocessors *set) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < VGX_SIM_MULTIPROCESSORS_MAX / 64; i++)
    count += (uint32_t)__builtin_popcountll(set->words[i]);
  return count;
}

uint32_t vgx_sim_green_multiprocessor(const struct CUgreenCtx_st *green, uint32_t number) {
  if (!green)
    return number;
  uint32_t left = number % green->count, i = 0;
  while (!vgx_sim_green_has(&green->multiprocessors, i) || left--)
    i++;
  return i;
}

int64_t vgx_sim_green_count(const struct vgx_sim_device *device, const struct CUgreenCtx_st *green) {
  return green ? green->count : vgx_sim_attribute(device, VGX_SIM_SM_COUNT, 1);
}

void vgx_sim_green_end_one_locked(CUgreenCtx green) {
  green->magic = VGX_SIM_DEAD;
  if (green->context)
    green->context->destroyed = true;
  if (green->held)
    vgx_sim_marker_unref_locked(green->held);
  green->held = NULL;
}

void vgx_sim_green_end_locked(CUcontext primary) {
  for (CUgreenCtx green = primary->greens; green; green = green->next)
    vgx_sim_green_end_one_locked(green);
  primary->greens = NULL;
}
