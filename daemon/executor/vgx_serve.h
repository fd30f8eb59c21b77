/* The executor's interface to the worker's Python code. */
#ifndef VGX_SERVE_H
#define VGX_SERVE_H

#include "vgx_confine.h"
#include "vgx_cuda.h"
#include "vgx_host_quota.h"
#include "vgx_image_cache.h"
#include "vgx_meter.h"
#include "vgx_quota.h"
#include "vgx_warm.h"
#include <stdbool.h>
#include <stdint.h>

struct vgx_backend;
struct vgw_ledger;

/* The first two need a channel that carries file descriptors; the third, memory shared with the client's machine. With
 * the fourth the client takes vgx_progress's records. */
enum { VGX_FEATURE_PINNED_FD = 1, VGX_FEATURE_RING = 2, VGX_FEATURE_REGION = 4, VGX_FEATURE_PROGRESS = 8 };

struct vgx_serve_options {
  const struct vgx_backend *backend;
  uint32_t features;                        /* VGX_FEATURE_* agreed in the hello */
  uint32_t max_threads;                     /* threads that execute calls, those of rings included; 0: 512 */
  uint32_t spin_us;                         /* how long an idle ring's thread spins before it sleeps; 0: not at all */
  void (*log)(int level, const char *line); /* level as syslog's: 3 error, 4 warning, 6 info; any thread */
  /* VGX_FEATURE_REGION: the region, and which part of it is this session's (whole pages). */
  int region_fd;
  uint64_t region_offset, region_nbytes;
  const uint8_t *host_devices; /* by device, its number among the host's; NULL: the same */
  struct vgw_ledger *ledger;   /* what all sessions use; NULL: this session is counted alone */
  uint32_t ledger_row;         /* this session's */
  uint64_t host_limit_nbytes;  /* bytes of clients' memory that a tenant's workers may map together; 0: no limit */
  bool host_limit_of_share;    /* the limit is the share's, not that of [limits] */
  const char *share;           /* the name of the tenant's share; NULL: it has none */
  /* limits for all of the tenant's sessions together, by enum vgw_quota; 0: no limit */
  uint64_t quotas[VGW_QUOTA_COUNT];
  uint64_t calls_per_s; /* likewise */
  uint32_t denied;      /* a bit for each enum vgw_group that the share is denied */
  /* Some calls of this function have been denied: the 1st, 10th and so on of the session; any thread. May be NULL. */
  void (*on_denied)(unsigned count, const char *function);
};

enum vgx_reason {
  VGX_ENDED_BY_CLIENT = 0, /* end of file */
  VGX_ENDED_BY_VIOLATION = 1,
  VGX_ENDED_BY_CHANNEL = 2, /* read or write error, or a client that does not take its replies */
  VGX_ENDED_BY_RESOURCES = 3,
  VGX_ENDED_BY_STOP = 4, /* vgx_stop */
};

/* Serve one session on a connected stream socket until it ends; returns enum vgx_reason. The caller owns `fd`. One at a
 * time. */
int vgx_serve(int fd, const struct vgx_serve_options *options);

/* Tell the client what the host has been working on for seconds, if it accepts such reports; `ends`: why the session
 * ends, which the client shows in any case. From any thread. */
void vgx_progress(const char *line, bool ends);

/* One line for the log, of the last session served. */
const char *vgx_reason_text(void);

/* End the session from another thread or a signal handler. */
void vgx_stop(void);

#endif
