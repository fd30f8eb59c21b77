/* Delays at random places, so that an idle machine shows what depends on the order of threads: with VGT_STALL=N a
 * thread sleeps before one of N basic blocks of the traced files, mostly for some milliseconds and sometimes for longer
 * than the simulator's limit for kernels. */
#ifndef VGT_FUZZ_STALL_H
#define VGT_FUZZ_STALL_H

#include <stdint.h>

void vgt_stall_init(void);
extern uint32_t vgt_stall_one_in; /* 0: never */
void vgt_stall_maybe(void);

#endif
