#ifndef VGT_FUZZ_DESKS_H
#define VGT_FUZZ_DESKS_H

#include <stdbool.h>

/* Before the first session: start the threads that answer the worker's questions in vgpud's place. */
void vgt_desks_open(void);

/* Whether a descriptor is open and not of the simulated device's physical memory, which ends with the worker. */
bool vgt_descriptor_counts(int fd);

/* How many such descriptors they have been given and keep. */
int vgt_desks_held(void);

#endif
