/* Which bytes of device memory have been written since they were allocated: a bit for each byte, in a reservation whose
 * pages come into being when they are touched. Memory of the host counts as written. */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "vgx_sim_defined.h"
#include "vgx_sim_reach.h"
#include "vgx_sim_watch.h"

#define DEVICES_NBYTES (VGW_PINNED_BEGIN - VGW_DEVICE_MEMORY_BEGIN)

uint32_t vgx_sim_tools;

static uint8_t *bits; /* atomic; NULL: initcheck is off, or memory is short */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void map(void) {
  void *got =
      mmap(NULL, DEVICES_NBYTES / 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  __atomic_store_n(&bits, got == MAP_FAILED ? NULL : got, __ATOMIC_RELEASE);
}

static uint8_t *of_process(void) {
  if (!(vgx_sim_tools & VGX_SIM_INITCHECK))
    return NULL;
  pthread_once(&once, map);
  return __atomic_load_n(&bits, __ATOMIC_ACQUIRE);
}

/* Whether device memory holds the range; *offset is its first bit. */
static bool covers(uint64_t address, uint64_t nbytes, uint64_t *offset) {
  *offset = address - VGW_DEVICE_MEMORY_BEGIN;
  return address >= VGW_DEVICE_MEMORY_BEGIN && *offset < DEVICES_NBYTES && nbytes <= DEVICES_NBYTES - *offset;
}

void vgx_sim_set_defined(uint64_t address, uint64_t nbytes, bool defined) {
  uint8_t *all = of_process();
  uint64_t at;
  if (!all || !covers(address, nbytes, &at))
    return;
  for (uint64_t end = at + nbytes; at < end;) {
    if (at % 8 == 0 && end - at >= 8) {
      memset(all + at / 8, defined ? 0xff : 0, (end - at) / 8);
      at += (end - at) / 8 * 8;
    } else {
      uint8_t bit = (uint8_t)(1u << at % 8);
      all[at / 8] = (uint8_t)(defined ? all[at / 8] | bit : all[at / 8] & ~bit);
      at++;
    }
  }
}

void vgx_sim_watch_defined(uint64_t address, uint64_t nbytes) {
  if (vgx_sim_tools & VGX_SIM_INITCHECK)
    vgx_sim_set_defined(address, nbytes, true);
}

bool vgx_sim_is_defined(uint64_t address, uint64_t nbytes) {
  const uint8_t *all = of_process();
  uint64_t at;
  if (!all || !covers(address, nbytes, &at))
    return true;
  for (uint64_t end = at + nbytes; at < end;) {
    uint64_t word;
    if (at % 64 == 0 && end - at >= 64) {
      memcpy(&word, all + at / 8, sizeof word);
      if (word != UINT64_MAX)
        return false;
      at += 64;
    } else if (at % 8 == 0 && end - at >= 8) {
      if (all[at / 8] != 0xff)
        return false;
      at += 8;
    } else {
      if (!(all[at / 8] >> at % 8 & 1))
        return false;
      at++;
    }
  }
  return true;
}
