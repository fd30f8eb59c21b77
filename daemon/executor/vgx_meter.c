#define _GNU_SOURCE
#include "vgx_meter.h"

#include <sys/mman.h>
#include <unistd.h>

#include "vgw_clock.h"
#include "vgx_session.h"

_Static_assert(VGW_OP_COUNT <= VGX_METER_OPS, "every opcode has a row");

static struct vgx_meter nobodys;
struct vgx_meter *vgx_meter = &nobodys;

void vgx_meter_set(int fd) {
  void *mapped = mmap(NULL, sizeof *vgx_meter, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped != MAP_FAILED)
    vgx_meter = mapped;
}

static void add(atomic_ullong *counter, uint64_t value) {
  atomic_fetch_add_explicit(counter, value, memory_order_relaxed);
}

uint64_t vgx_meter_begin(uint16_t opcode, bool waits) {
  uint64_t before = atomic_fetch_add_explicit(&vgx_meter->ops[opcode].count, 1, memory_order_relaxed);
  return waits || before % VGX_METER_SAMPLE == 0 ? vgw_now_ns() : 0;
}

void vgx_meter_end(uint16_t opcode, bool waits, uint64_t begun_ns, uint64_t nbytes) {
  struct vgx_meter_op *op = &vgx_meter->ops[opcode];
  add(&op->nbytes, nbytes);
  if (!begun_ns)
    return;
  uint64_t ns = vgw_now_ns() - begun_ns, us = ns / 1000;
  uint32_t bucket = us ? 64 - (uint32_t)__builtin_clzll(us) : 0, weight = waits ? 1 : VGX_METER_SAMPLE;
  if (bucket >= VGX_METER_BUCKETS)
    bucket = VGX_METER_BUCKETS - 1;
  add(&op->timed, weight);
  add(&op->timed_ns, ns * weight);
  atomic_fetch_add_explicit(&op->buckets[bucket], weight, memory_order_relaxed);
}

void vgx_meter_finish(void) { atomic_store(&vgx_meter->cpu_ns, vgw_clock_ns(CLOCK_PROCESS_CPUTIME_ID)); }
