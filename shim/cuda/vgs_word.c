#include "vgs_word.h"
#include "vgs_host_mirror.h"
#include "vgs_range.h"
#include "vgw_pinned.h"

CUdeviceptr vgs_word_address(CUdeviceptr address, uint64_t nbytes) {
  struct vgs_range range;
  if (!address || address % nbytes)
    return 0;
  if (vgs_host_mirror_expose(address))
    return 0;
  if (vgs_range_find(address, &range))
    return vgs_range_is_host(&range) ? vgs_range_device_address(&range, address) : address;
  /* An address in the window may be the device's address of registered memory; the worker checks it. */
  return address - VGW_PINNED_BEGIN < VGW_PINNED_NBYTES ? address : 0;
}

static bool is_known(const CUstreamBatchMemOpParams *p) {
  switch (p->operation) {
  case CU_STREAM_MEM_OP_WAIT_VALUE_32:
  case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    return vgs_word_address(p->value.address, 4) == p->value.address;
  case CU_STREAM_MEM_OP_WAIT_VALUE_64:
  case CU_STREAM_MEM_OP_WRITE_VALUE_64:
    return vgs_word_address(p->value.address, 8) == p->value.address;
  default: /* the driver judges other operations */
    return true;
  }
}

bool vgs_words_are_known(const CUstreamBatchMemOpParams *params, unsigned count) {
  unsigned known = 0;
  while (known < count && is_known(&params[known]))
    known++;
  return known == count;
}
