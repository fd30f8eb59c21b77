/* PTX texts as one image that vgpu's driver loads. */
#ifndef VGS_LINKED_H
#define VGS_LINKED_H

#include <stddef.h>

struct vgs_text {
  struct vgs_text *next;
  size_t nbytes; /* without its NUL */
  char bytes[];
};

/* One text is its own image, ended by a NUL. Several go, each ended by a NUL, into the section .vgpu.ptx of an ELF file
 * as vgpud writes it for cuLink: a module made of it resolves symbols across them. NULL when out of memory. */
char *vgs_linked_image(const struct vgs_text *texts, int sm, size_t *nbytes);

#endif
