#ifndef VGT_FUZZ_DESKS_H
#define VGT_FUZZ_DESKS_H

#include <stdbool.h>

/* Before the first session: start the threads that answer the worker's questions in vgpud's place. `half`: one of the
 * answers about images is too short, after which the process's sessions ask for none any more. */
void vgt_desks_open(bool half);

/* Whether the next session finds a cache of images at all. */
void vgt_desks_cache(bool is_there);

/* Whether the last answer about an image has come too late: VGT_LATE_US after the question. */
enum { VGT_LATE_US = 250000 };
bool vgt_desks_late(void);

/* Whether a descriptor is open and not of the simulated device's physical memory, which ends with the worker. */
bool vgt_descriptor_counts(int fd);

/* How many such descriptors they have been given and keep. */
int vgt_desks_held(void);

#endif
