/* The worker's end of its socket to vgpud while it has a session (vgpud/supervision/worker_process.py). */
#ifndef VGX_CONTROL_H
#define VGX_CONTROL_H

#include <stdint.h>

/* Start a thread that ends this process as soon as vgpud's end closes, and answers how many bytes each device has in
 * use: `used` of 0 to device_count - 1, or nothing if it is NULL. It runs no Python, because most of an idle worker's
 * memory is pages that Python has written to. Returns 0 or an errno. `fd` stays the caller's. */
int vgx_control_start(int fd, uint64_t (*used)(uint32_t device), uint32_t device_count);

/* Between these two calls the thread writes to nothing but its stack. */
void vgx_control_lock(void);
void vgx_control_unlock(void);

#endif
