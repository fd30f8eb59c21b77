/* The end of host memory that the worker has mapped. */
#ifndef VGS_HOST_END_H
#define VGS_HOST_END_H

#include <stdint.h>

/* Have the worker unmap the host memory of a context that is about to end, and is entered: its bytes no longer count
 * then. The client's ranges of it end with the context. */
void vgs_host_end_context(uint32_t context_id);

/* Registered pages that were moved into a file become private again, unless the program has mapped something else
 * there. */
void vgs_host_end_moved(uint64_t begin, uint64_t end);

#endif
