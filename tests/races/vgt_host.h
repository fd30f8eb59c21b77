/* A host in the program's own process: vgpud in a few lines, the real executor behind it, on the simulator's C half
 * with hand-written kernels (tests/vgpusim/device/vgt_kernels.c). A file that both sides map is mapped once, so that a
 * sanitizer sees the client's thread and the worker's at one address. */
#ifndef VGT_HOST_H
#define VGT_HOST_H

#include <stdbool.h>

/* Listen, and have VGPU_ENDPOINT say where. */
void vgt_host_start(void);

/* The worker dies, as far as a client can tell. */
void vgt_host_kill_worker(void);

/* The worker takes its time for each copy from records, so that rings fill. */
void vgt_host_slow_down(bool slow);

#endif
