/* Pages of the program's own memory: what the kernel says they are, and how another process may have them, too. */
#ifndef VGS_PAGES_H
#define VGS_PAGES_H

#include <stdbool.h>
#include <stdint.h>

enum { VGS_PAGE_NBYTES = 4096 };
#define VGS_PAGES_MOVED "vgpu-registered" /* name of the files that pages are moved into */

enum vgs_pages_kind {
  VGS_PAGES_NONE,    /* not all of them are mapped */
  VGS_PAGES_PRIVATE, /* anonymous, of this process alone */
  VGS_PAGES_FILE,    /* one piece of one file that is mapped shared */
  VGS_PAGES_STACK,   /* the first thread's stack */
  VGS_PAGES_OTHER,   /* private mappings of files, anything mixed */
};

struct vgs_pages {
  enum vgs_pages_kind kind;
  bool writable;               /* all of them */
  uint64_t device, inode;      /* of the file */
  uint64_t offset;             /* of the first page in it */
  uint64_t map_begin, map_end; /* the mapping the first page lies in */
  char path[256];              /* what the kernel calls the file; "" if that is longer */
};

/* The kind of memory behind whole pages. */
void vgs_pages_look(uint64_t begin, uint64_t end, struct vgs_pages *pages);

/* Where the kernel's mappings of whole pages end, in order; the last ends at `end`. 0: not all of them are mapped, or
 * there are more than `room`. */
unsigned vgs_pages_mappings(uint64_t begin, uint64_t end, uint64_t *ends, unsigned room);

/* A descriptor of the file; the caller closes it. -1: this process has none and cannot open it again. */
int vgs_pages_open(const struct vgs_pages *pages);

#endif
