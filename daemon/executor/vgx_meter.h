/* What a session's calls cost: a file that vgpud makes (vgpud/tenancy/meter.py) and its worker maps and writes. vgpud
 * reads it on request, and trusts it no more than it trusts a client. */
#ifndef VGX_METER_H
#define VGX_METER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define VGX_METER_OPS 1024u
#define VGX_METER_BUCKETS 24u
#define VGX_METER_QUOTAS 16u
#define VGX_METER_GROUPS 8u

struct vgx_meter_op {
  atomic_ullong count, nbytes;   /* calls; their records and replies */
  atomic_ullong timed, timed_ns; /* calls that were timed; their total time */
  /* bucket i: calls of less than 2^i us that are not in an earlier bucket; the last bucket: all longer ones */
  atomic_uint buckets[VGX_METER_BUCKETS];
};

struct vgx_meter {
  atomic_ullong faults, cpu_ns; /* kernels that ended the context; the worker's processor time, once it has ended */
  atomic_ullong devices;        /* a bit for each device on which the session has made a context */
  atomic_ullong held_ns;        /* time that calls waited because of the limit per second */
  atomic_uint denied[VGX_METER_GROUPS]; /* calls that were denied, by enum vgw_group */
  atomic_ullong
      refused[VGX_METER_QUOTAS]; /* calls that would have been over a limit, by enum vgw_quota; 0: host memory */
  struct vgx_meter_op ops[VGX_METER_OPS]; /* by opcode */
};

/* Before vgx_serve: map the file; takes ownership of `fd`. */
void vgx_meter_set(int fd);

/* The session's meter; never NULL: before vgx_meter_set it is one that nobody reads. */
extern struct vgx_meter *vgx_meter;

/* Called around a call. Every call that the client waits for is timed, and one in VGX_METER_SAMPLE of the others,
 * because reading the clock costs as much as the smallest call. `begin` returns 0 for a call that is not timed. */
enum { VGX_METER_SAMPLE = 16 };
uint64_t vgx_meter_begin(uint16_t opcode, bool waits);
void vgx_meter_end(uint16_t opcode, bool waits, uint64_t begun_ns, uint64_t nbytes);

/* Store the worker's processor time so far. */
void vgx_meter_finish(void);

#endif
