/* Whole reads and writes on a stream socket: EINTR and short transfers are dealt with here, SIGPIPE never raised. */
#ifndef VGS_SOCKET_H
#define VGS_SOCKET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum { VGS_NO_DEADLINE = -1 };

/* CLOCK_MONOTONIC in milliseconds. */
int64_t vgs_now_ms(void);

/* Sleep until `events` (poll) or the deadline: 0, -ETIMEDOUT or -errno. */
int vgs_socket_wait(int fd, short events, int64_t deadline_ms);

/* Send everything; `iov` is consumed. `pass_fd` >= 0 travels with the first byte. 0 or -errno. */
int vgs_socket_send(int fd, struct iovec *iov, int count, int pass_fd);

/* Receive between 1 and `nbytes` bytes: the number, 0 at the end of the stream, or -errno. */
ssize_t vgs_socket_receive(int fd, void *into, size_t nbytes, int64_t deadline_ms);

/* Receive exactly `nbytes`: 0, -ECONNRESET at the end of the stream, or -errno. */
int vgs_socket_receive_all(int fd, void *into, size_t nbytes, int64_t deadline_ms);

#endif
