#include "vgs_cupti_external.h"
#include "vgs_cupti_api.h"
#include "vgs_cupti_buffer.h"
#include "vgs_cupti_layout.h"
#include "vgs_cupti_result.h"
#include "vgs_cupti_state.h"

enum { DEPTH = 256 }; /* of a thread's stack, in thread-local storage; Kineto pushes one for each nested operator */

static _Thread_local struct {
  uint64_t ids[DEPTH];
  uint32_t depth; /* ids beyond DEPTH are counted, not stored */
} stacks[VGS_EXTERNAL_KINDS];

int vgs_cuptiActivityPushExternalCorrelationId(uint32_t kind, uint64_t id) {
  if (!kind || kind >= VGS_EXTERNAL_KINDS)
    return CUPTI_ERROR_INVALID_PARAMETER;
  if (stacks[kind].depth < DEPTH)
    stacks[kind].ids[stacks[kind].depth] = id;
  stacks[kind].depth++;
  return CUPTI_SUCCESS;
}

int vgs_cuptiActivityPopExternalCorrelationId(uint32_t kind, uint64_t *lastId) {
  if (!kind || kind >= VGS_EXTERNAL_KINDS)
    return CUPTI_ERROR_INVALID_PARAMETER;
  if (!stacks[kind].depth)
    return CUPTI_ERROR_QUEUE_EMPTY;
  uint32_t top = --stacks[kind].depth;
  if (lastId)
    *lastId = stacks[kind].ids[top < DEPTH ? top : DEPTH - 1];
  return CUPTI_SUCCESS;
}

void vgs_cupti_put_external(uint32_t correlation) {
  for (uint32_t kind = 1; kind < VGS_EXTERNAL_KINDS; kind++) {
    uint32_t depth = stacks[kind].depth;
    if (!depth)
      continue;
    struct vgs_cupti_ExternalCorrelation record = {.kind = VGS_KIND_EXTERNAL_CORRELATION,
                                                   .externalKind = kind,
                                                   .externalId =
                                                       stacks[kind].ids[depth < DEPTH ? depth - 1 : DEPTH - 1],
                                                   .correlationId = correlation};
    vgs_cupti_put(&record, sizeof record);
  }
}
