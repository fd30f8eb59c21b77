#ifndef VGT_FUZZ_DESKS_H
#define VGT_FUZZ_DESKS_H

/* Before the first session: start the threads that answer the worker's questions in vgpud's place. */
void vgt_desks_open(void);

#endif
