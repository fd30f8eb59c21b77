/* The control phase (protocol/wire.md): frames of msgpack, before the connection belongs to a worker. */
#ifndef VGS_HELLO_H
#define VGS_HELLO_H

#include "vgs_endpoint.h"
#include "vgs_inventory.h"

enum { VGS_PROTOCOL_VERSION = 1 };
enum { VGS_WELCOME_TIMEOUT_MS = 5000, VGS_ATTACH_TIMEOUT_MS = 30000 };

struct vgs_welcome {
  uint16_t epoch;
  uint32_t record_nbytes; /* largest record the host takes */
  bool pinned_fd;         /* feature `pinned-fd` */
  struct vgs_inventory inventory;
};

/* Say hello and read the welcome.
 * Returns: 0 and an owned inventory; the code of a refusal; SYSTEM_NOT_READY when the peer went away or said nothing in
 * time; SYSTEM_DRIVER_MISMATCH when it speaks another language or version. */
CUresult vgs_hello(int fd, const struct vgs_endpoint *endpoint, struct vgs_welcome *welcome);

/* Have the connection given to a worker. Same results. */
CUresult vgs_attach(int fd);

#endif
