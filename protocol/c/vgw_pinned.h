/* The address range in which clients place pinned memory, which both processes map at one address: processes map
 * nothing else there. Both may be set by the compiler's command line: ThreadSanitizer reserves this range. */
#ifndef VGW_PINNED_H
#define VGW_PINNED_H

#ifndef VGW_PINNED_BEGIN
#define VGW_PINNED_BEGIN 0x300000000000ull /* far from where the kernel puts mappings on x86-64 and aarch64 */
#endif
#ifndef VGW_PINNED_NBYTES
#define VGW_PINNED_NBYTES 0x080000000000ull
#endif

#include <stdint.h>

/* Whole pages of the worker's copies of host memory: what vgpuHostChanges is asked about, and, followed by its bytes,
 * what it answers. */
struct vgw_host_pages {
  uint64_t address, nbytes;
};

#endif
