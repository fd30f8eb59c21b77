#ifndef VGT_FUZZ_CLIENT_H
#define VGT_FUZZ_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "vgw_wire.h"

/* What a session's client sends beside its input. First the records that make its objects; false: the device is lost,
 * as after a kernel of an earlier session that the watchdog ended. */
bool vgt_client_open(int fd);

/* Ask which function is due, and say that those with the numbers of VGT_SMALL have been called. */
void vgt_client_answer(int fd, uint32_t turn);

/* A profiler observes some launches; and reads what was measured. */
void vgt_client_measure(int fd);
void vgt_client_measured(int fd);

/* Misuse a ring or a tensor map, so that the session ends: at a place that the input's length chooses. */
void vgt_client_misuse(int fd, struct vgw_ring *ring, uint32_t how);

#endif
