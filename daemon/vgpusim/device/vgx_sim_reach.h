/* Where everything lies that a kernel may touch: one range of addresses, so that a test of the upper bits of an address
 * confines it (codegen/emit_access.py). From its begin on: each device's memory, then pinned, registered and managed
 * memory of the client (vgw_pinned.h), then slots, one for each thread that runs kernels, with what a CTA has to
 * itself. Nothing else of this process lies there, and nothing at all within 4 GiB around it: what is tested is where
 * an access begins, on lane 0 of a warp whose other lanes lie less than 2 GiB away. */
#ifndef VGX_SIM_REACH_H
#define VGX_SIM_REACH_H

#include <stdbool.h>
#include <stdint.h>

#include "vgw_device_memory.h"
#include "vgw_pinned.h"

#define VGX_SIM_REACH_BEGIN VGW_DEVICE_MEMORY_BEGIN /* 1 << abi.REACH_NBITS; ends at twice that */
#define VGX_SIM_REACH_MARGIN_NBYTES (4ull << 30)

#define VGX_SIM_SLOTS_BEGIN (VGW_PINNED_BEGIN + VGW_PINNED_NBYTES)
#ifndef VGX_SIM_SLOT_UNIT /* ThreadSanitizer leaves room for small slots alone */
#define VGX_SIM_SLOT_UNIT (1ull << 30)
#endif
#define VGX_SIM_SLOT_NBYTES (16 * VGX_SIM_SLOT_UNIT)
#ifndef VGX_SIM_SLOTS_MAX
#define VGX_SIM_SLOTS_MAX 511u /* of the range's 512: the last is the margin above it */
#endif
#define VGX_SIM_REACH_END (VGX_SIM_SLOTS_BEGIN + VGX_SIM_SLOTS_MAX * VGX_SIM_SLOT_NBYTES)

/* In a slot. A shared address is a 32-bit offset, zero- or sign-extended, from the base of its CTA, which lies below
 * VGX_SIM_SHARED_NBYTES_MAX: it stays between the slot's begin and its local memory. */
#define VGX_SIM_SLOT_SHARED (4 * VGX_SIM_SLOT_UNIT)
#define VGX_SIM_SHARED_NBYTES_MAX (2 * VGX_SIM_SLOT_UNIT)
#define VGX_SIM_SLOT_LOCAL (11 * VGX_SIM_SLOT_UNIT)
#define VGX_SIM_LOCAL_NBYTES_MAX (4 * VGX_SIM_SLOT_UNIT)
#define VGX_SIM_SLOT_PARAMS (VGX_SIM_SLOT_LOCAL + VGX_SIM_LOCAL_NBYTES_MAX + VGX_SIM_SLOT_UNIT / 16)
#define VGX_SIM_PARAMS_NBYTES_MAX (64ull << 10) /* parameters, and the workspace of a cooperative launch */

#ifndef __SANITIZE_THREAD__ /* which has its own tables there, and a layout of its own */
_Static_assert(VGX_SIM_REACH_BEGIN == 1ull << 45, "abi.REACH_NBITS");
_Static_assert(VGX_SIM_REACH_END + VGX_SIM_SLOT_NBYTES == 1ull << 46, "the margin above");
#endif

/* Whether a kernel may name an address. What lies there may still not be mapped: then touching it is a fault. */
static inline bool vgx_sim_is_reachable(uint64_t address) {
  return address >= VGX_SIM_REACH_BEGIN && address < VGX_SIM_REACH_END;
}

#endif
