/* Which exported function of a library a call came through. */
#ifndef VGS_CUPTI_CALLER_H
#define VGS_CUPTI_CALLER_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>

enum { VGS_CALLER_DEPTH = 12 };

/* The part of a stack that lies in one library, from the innermost frame outwards: at which offsets from the innermost
 * frame's end the return addresses lie, and what they are. Equal calls have equal paths. */
struct vgs_cupti_path {
  const char *base, *end; /* where the library is loaded */
  const void *returns[VGS_CALLER_DEPTH];
  uint32_t offsets[VGS_CALLER_DEPTH]; /* the first is not used: the innermost return address is given */
  uint32_t depth;                     /* return addresses in the library; at offsets[depth] lies one outside of it */
};

/* Walk the stack of the calling thread, in which a function that returns to `caller` has a frame that ends at `frame`.
 * Returns the exported symbol that the outermost frame in the caller's library belongs to; NULL: it has none, or the
 * stack cannot be walked; path->depth is then 0 and the path leads nowhere. */
const char *vgs_cupti_walk(const void *caller, const char *frame, struct vgs_cupti_path *path);

/* Whether the stack holds this path. */
bool vgs_cupti_is_on_path(const char *frame, const struct vgs_cupti_path *path);

#endif
