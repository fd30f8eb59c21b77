/* See vgt_fuzz_host.h. */
#define _GNU_SOURCE
#include "vgt_fuzz_host.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "vgt_fuzz.h"
#include "vgt_fuzz_desks.h"
#include "vgt_fuzz_driver.h"
#include "vgt_fuzz_must.h"
#include "vgt_fuzz_tenants.h"
#include "vgt_fuzz_walks.h"
#include "vgw_ledger.h"
#include "vgw_wire.h"
#include "vgx_host_quota.h"
#include "vgx_limit.h"
#include "vgx_meter.h"
#include "vgx_recording.h"
#include "vgx_sim.h"
#include "vgx_usage.h"

enum {
  LIMIT_NBYTES = 1 << 30,
  REGION_NBYTES = sizeof(struct vgw_ring),
  COMPILE_NS = 100000000,
  QUOTA = 20 /* the opening makes 12 objects of a kind at most, and the tenant has others */
};

void vgt_install(void);

static const struct vgx_backend *backend;

const struct vgx_backend *vgt_host_backend(void) { return backend; }

void vgt_host_init(unsigned process) {
  static struct vgx_sim_device_properties properties = {.memory_nbytes = 4ull << 30, .context_nbytes = 1 << 20};
  static const int32_t known[][2] = {{1, 1024},   {2, 1024},  {3, 1024},   {4, 64},   {5, INT32_MAX}, {6, 65535},
                                     {7, 65535},  {8, 49152}, {10, 32},    {16, 132}, {39, 2048},     {75, 9},
                                     {81, 49152}, {95, 1},    {97, 49152}, {106, 32}, {111, 1024}};
  for (int i = 0; i < (int)VGX_SIM_ATTRIBUTES_MAX; i++)
    properties.attributes[i] = INT32_MIN;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    properties.attributes[known[i][0]] = known[i][1];
  properties.attributes[76] = 0;
  for (int i = 0; i < (int)VGX_SIM_LIMITS_MAX; i++)
    properties.limits[i] = i < 3 ? (uint64_t[]){1024, 4096, 8 << 20}[i] : UINT64_MAX;
  properties.priority_greatest = -5;
  vgt_must(!vgx_sim_configure(0, &properties), "simulator");
  vgx_sim_set_threads(2);
  vgx_sim_set_watchdog(2000);
  vgt_install();
  vgt_desks_open(process % VGT_PROCESSES == VGT_PROCESSES - 2);
  backend = vgt_driver(vgx_sim_backend());
  /* vgt_fuzz_nvml.c stands in for NVML: opened as "", this program itself. It knows the first device only. */
  vgx_usage_init("", process & VGT_SHARED ? "GPU-1,GPU-2" : "GPU-2");
  bool limited = process % VGT_PROCESSES / VGT_LIMITED == 1; /* a quarter of the processes */
  if (limited)
    backend = vgx_limit_backend(backend, vgt_tenants_ledger(), VGT_LIMITED_ROW, LIMIT_NBYTES, (const uint8_t[]){0}, 1);
  if (process & VGT_SHARED)
    vgt_tenants_share();
  if ((process & VGT_SHARED) && limited)
    vgt_walk_record(VGT_RECORDED_NBYTES);
}

static void quiet(int level, const char *line) {
  (void)level;
  if (getenv("VGT_LOG"))
    fprintf(stderr, "%s\n", line);
}
static void quiet_denied(unsigned count, const char *function) { (void)count, (void)function; }

static struct vgx_serve_options options;

const struct vgx_serve_options *vgt_host_options(uint32_t chosen) {
  static bool metered;
  struct vgw_ledger *ledger = vgt_tenants_ledger();
  if (!metered)
    vgx_meter_set(vgt_zeroes(sizeof(struct vgx_meter)));
  metered = true;
  uint32_t which = chosen / 8 % 4, more = chosen / 32 % 8;
  vgt_driver_words(more & 1);
  options = (struct vgx_serve_options){.features = VGX_FEATURE_PINNED_FD | VGX_FEATURE_RING | VGX_FEATURE_PROGRESS,
                                       .log = quiet,
                                       .backend = backend,
                                       .host_limit_nbytes = 1 << 30,
                                       .region_fd = -1,
                                       .spin_us = which == 1 ? 20 : 0};
  if (which == 3 && more == 0) { /* a virtual machine, whose memory the second ring is in */
    options.features |= VGX_FEATURE_REGION;
    options.region_fd = vgt_zeroes(REGION_NBYTES);
    options.region_nbytes = REGION_NBYTES;
  }
  if (which == 0 && more == 7)
    options.backend = vgt_driver_of_few();
  if (which != 2)
    return &options;
  options.host_limit_nbytes = 64 << 10;
  options.host_limit_of_share = more & 2;
  options.share = "share";
  options.ledger = ledger;
  options.ledger_row = VGT_ROW;
  options.calls_per_s = more == 6 ? 500 : 20000;
  options.denied = more == 7 ? 1u << VGW_GROUP_EXPORT | 1u << VGW_GROUP_PEER | 1u << VGW_GROUP_MEMOPS : 0;
  options.on_denied = quiet_denied;
  for (uint32_t i = 1; i < VGW_QUOTA_COUNT; i++)
    options.quotas[i] = QUOTA;
  options.quotas[VGW_QUOTA_IMAGE_NBYTES] = 4096;
  options.quotas[VGW_QUOTA_COMPILE_NS] = COMPILE_NS;
  return &options;
}
