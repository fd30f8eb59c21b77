/* The dispatcher and the handle table over stubs: what the tests call, and what the generated stubs (of the driver, and
 * of the executor's hand-written halves) use. */
#ifndef VGT_DISPATCH_H
#define VGT_DISPATCH_H

#include <stdint.h>

/* The number of the guard that is disabled; -1: none. Guards are numbered in the order of the generated file. */
extern int vgt_mutant;

/* Each stub calls vgt_reach first; `vgt_object` makes a new object for a stub to return. */
void vgt_reach(const char *name);
void *vgt_object(void);

/* The result that stubs of the driver return. */
extern int vgt_result;

/* The object with id 1 of a kind. */
void *vgt_first(int kind);

/* Read all bytes of a stub's input, which ends before an inaccessible page. */
void vgt_read(const void *data, uint64_t nbytes);

/* Set a member of the backend to its stub, or to NULL if not `offered`; generated. */
void vgt_offer(const char *name, int offered);

#endif
