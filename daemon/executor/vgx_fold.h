/* Memory that is kept as its differences from a file until any thread touches it.
 *
 * Most of an idle worker's own pages differ from its launcher's in a few counts of references. Such a range becomes
 * inaccessible, and takes only the words that differ; the first access faults, and the handler of SIGSEGV gives all
 * ranges their contents back before the instruction is repeated. A system call that is given such an address fails with
 * EFAULT instead, so a range holds only what its owner reads or writes before it passes it to the kernel. */
#ifndef VGX_FOLD_H
#define VGX_FOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whole pages that are a private mapping of `fd` at `offset`; `file`: the same part of the file. */
struct vgx_fold_range {
  uint8_t *address;
  size_t nbytes;
  const uint8_t *file;
  int fd;
  int64_t offset;
};

/* Prepare for at most `pages` pages that differ. False: not enough memory. Once in a process. */
bool vgx_fold_begin(size_t pages);
/* Note the differences of one page of the range that comes next. */
void vgx_fold_add(const struct vgx_fold_range *range, size_t page);
/* Forget the notes of that range. */
void vgx_fold_clear(void);
/* Fold this range, all of whose pages that differ have been noted. False: it stays as it is. No other thread uses it.
 */
bool vgx_fold(const struct vgx_fold_range *range);
/* All ranges are folded: give back what the notes do not need. */
void vgx_fold_end(void);

#endif
