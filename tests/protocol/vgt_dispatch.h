/* The dispatcher and the handle table with nothing behind them: what test_dispatch.py calls, and what its generated
 * stubs (a driver, the executor's hand-written halves) use. */
#ifndef VGT_DISPATCH_H
#define VGT_DISPATCH_H

#include <stdint.h>

/* The guard that is left out; -1: none. Guards are numbered in the order of the generated file. */
extern int vgt_mutant;

/* A stub was reached; `vgt_object` is a new object for it to hand out. */
void vgt_reach(const char *name);
void *vgt_object(void);

/* What stubs of the driver answer. */
extern int vgt_result;

/* The object of a kind's id 1. */
void *vgt_first(int kind);

/* Read all of what a stub was given; it lies before a page that cannot be. */
void vgt_read(const void *data, uint64_t nbytes);

/* Set a member of the driver to NULL, or back; generated. */
void vgt_offer(const char *name, int offered);

#endif
