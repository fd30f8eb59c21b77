/* Records on their way to the program: a queue, from which they are copied to buffers that the program gives. */
#ifndef VGS_CUPTI_BUFFER_H
#define VGS_CUPTI_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Append a record. Locks `lock`. */
void vgs_cupti_put(const void *record, size_t nbytes);

/* Count a lost record. */
void vgs_cupti_count_dropped(uint64_t count);

/* Request a buffer from the program before there are records: some programs flush only after such a request. Also
 * deliver records if many are queued, unless another thread does so. No lock held. */
void vgs_cupti_buffers_tend(void);

/* Copy the queue to the program's buffers, and complete the last one. Returns a CUptiResult. No lock held. */
int vgs_cupti_deliver(void);

/* Whether the calling thread is inside one of the program's buffer callbacks. */
bool vgs_cupti_in_program(void);

/* In a forked child: forget all records and buffers. */
void vgs_cupti_reset_buffers(void);

#endif
