/* A host in the program's own process: vgpud in a few lines, the real executor, and the simulator's C half with
 * hand-written kernels (tests/vgpusim/device/vgt_kernels.c). A file that both sides map is mapped once, so that a
 * sanitizer sees accesses of the client's and the worker's threads at one address. */
#ifndef VGT_HOST_H
#define VGT_HOST_H

#include <stdbool.h>

/* Listen, and set VGPU_ENDPOINT to the endpoint. */
void vgt_host_start(void);

/* End the session; to the client it looks as if the worker had died. */
void vgt_host_kill_worker(void);

/* Delay each copy from a record by 1 ms if `slow`, so that rings fill. */
void vgt_host_slow_down(bool slow);

#endif
