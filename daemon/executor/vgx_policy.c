#include "vgx_policy.h"

#include "vgx_meter.h"
#include "vgx_session.h"

_Static_assert(VGW_GROUP_COUNT <= VGX_METER_GROUPS, "every group has a counter");

bool vgx_is_denied(const struct vgx_session *s, enum vgw_group group) { return s->options->denied & 1u << group; }

static bool is_power_of_ten(uint32_t count) {
  while (count && count % 10 == 0)
    count /= 10;
  return count == 1;
}

CUresult vgx_deny(struct vgx_session *s, enum vgw_opcode opcode, enum vgw_group group) {
  const char *name = vgx_operations[opcode].name;
  uint32_t count = atomic_fetch_add(&s->denied[opcode], 1) + 1;
  atomic_fetch_add_explicit(&vgx_meter->denied[group], 1, memory_order_relaxed);
  if (count == 1)
    vgx_reason(s, CUDA_ERROR_NOT_PERMITTED,
               "%s is not permitted here: share %s of vgpud's configuration denies %s (%s)", name,
               s->options->share ? s->options->share : "-", vgx_group_names[group], vgx_group_words[group]);
  if (s->options->on_denied && is_power_of_ten(count))
    s->options->on_denied(count, name);
  return CUDA_ERROR_NOT_PERMITTED;
}
