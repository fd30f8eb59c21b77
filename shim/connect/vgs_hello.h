/* The control phase (protocol/wire.md): frames of msgpack, before the connection belongs to a worker. */
#ifndef VGS_HELLO_H
#define VGS_HELLO_H

#include "vgs_endpoint.h"
#include "vgs_inventory.h"

enum { VGS_PROTOCOL_VERSION = 1 };
/* Attaching may wait for the workers of hundreds of other clients that start at the same time; vgpud ends the wait if
 * no worker becomes ready for some time (limits.worker_start_timeout_s). */
enum { VGS_WELCOME_TIMEOUT_MS = 900, VGS_START_TIMEOUT_MS = 15000, VGS_ATTACH_TIMEOUT_MS = 120000 };
enum { VGS_OVERLOAD_TIMEOUT_MS = 120000 }; /* of a welcome, while the host is overloaded */

struct vgs_welcome {
  uint16_t epoch;
  uint32_t record_nbytes; /* largest record the host takes */
  bool pinned_fd;         /* feature `pinned-fd` */
  bool images;            /* images may be offered by their digest */
  bool ring;              /* feature `ring` */
  bool activity;          /* feature `activity` */
  bool limited;           /* feature `quotas`: the number of objects is bounded */
  bool region;            /* feature `region`, and these describe it */
  uint8_t region_cookie[16];
  uint64_t region_nbytes;
  struct vgs_inventory inventory;
};

/* One frame each way; the body received is the caller's to free. SYSTEM_NOT_READY when the connection breaks or the
 * deadline passes, SYSTEM_DRIVER_MISMATCH for what is not a frame. */
CUresult vgs_frame_send(int fd, const uint8_t *body, uint32_t nbytes);
CUresult vgs_frame_receive(int fd, uint8_t **body, uint32_t *nbytes, int64_t deadline_ms);

/* 0 when a frame's map has `type` equal to `wanted`; the code of a refusal, which is logged; else
 * SYSTEM_DRIVER_MISMATCH. */
CUresult vgs_frame_check(const uint8_t *body, uint32_t body_nbytes, const char *wanted);

/* Say hello, as `library`, and read the welcome. `region`: memory shared with the host may be here (vgs_region_look).
 * Returns: 0 and an owned inventory; the code of a refusal; SYSTEM_NOT_READY when the peer closed or did not answer in
 * time; SYSTEM_DRIVER_MISMATCH when it speaks another language or version. */
CUresult vgs_hello(int fd, const struct vgs_endpoint *endpoint, const char *library, bool region,
                   struct vgs_welcome *welcome);

/* The resources of a worker for this session. */
struct vgs_attached {
  bool region; /* a range of the region, in bytes from its beginning */
  uint64_t offset, nbytes;
};

/* Attach the connection to a worker; with `region`, ask for a range of it. Returns as vgs_hello. */
CUresult vgs_attach(int fd, bool region, struct vgs_attached *attached);

/* The device, by the host's number, of the context about to be created; -1: none. A worker may have one ready. */
extern int vgs_attach_device; /* atomic */

#endif
