/* Pages that a worker shares with its launcher, whose copy it is.
 *
 * A fork shares each page until one side writes it. Python writes to nearly every page that it uses, as it counts
 * references there, though most counts are afterwards what they were before. So the launcher's writable memory is a
 * private mapping of a file, and a worker that is about to wait for its client drops those of its own pages that equal
 * the file's: the next access finds the file's page, the next write copies it again. Where Python has its objects,
 * which an idle worker does not use, a page that differs in a few words is dropped, too (vgx_fold.h). */
#ifndef VGX_TEMPLATE_H
#define VGX_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vgx_range {
  uintptr_t address;
  size_t nbytes; /* whole pages */
  bool folds;    /* holds objects of Python above all: see vgx_fold.h */
};

/* In the launcher: replace `ranges`, private writable mappings of this process, by private mappings of a sealed file of
 * the same contents. The process has one thread, and its stack lies in none of them. Call once. Returns 0 or an errno;
 * then nothing is ever dropped. */
int vgx_template_make(const struct vgx_range *ranges, uint32_t count);

/* In a worker: let the next vgx_template_release work. Called while the process is dumpable, as it may open its own
 * file /proc/self/pagemap only then. */
void vgx_template_open(void);

/* Drop this process's copies of pages that equal the file's, and fold the ranges that say so, once for each
 * vgx_template_open. No other thread runs but vgx_control's, and this one is not inside Python. Returns how many bytes
 * were dropped. */
size_t vgx_template_release(void);

#endif
