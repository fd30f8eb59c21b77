#define _GNU_SOURCE
#include "vgs_alias.h"
#include "vgs_api.h"
#include "vgs_claim.h"
#include "vgs_device.h"
#include "vgs_log.h"
#include "vgs_range.h"
#include "vgs_session.h"
#include "vgw_device_memory.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#define EXPORT __attribute__((visibility("default")))

/* Indexed by the device's number on the wire. `epoch`: the session of the last attempt; `mapped`: it succeeded. */
static struct {
  uint16_t epoch;
  bool mapped; /* atomic */
} files[VGW_SIMULATED_DEVICES_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *alias_begin(CUdevice wire) {
  return (void *)(uintptr_t)(VGW_DEVICE_MEMORY_BEGIN + (uint64_t)wire * VGW_DEVICE_MEMORY_NBYTES + VGW_ALIAS_OFFSET);
}

/* A sealed sparse file of the device's size, or -1: a process that exceeds its limit on file sizes is killed, so the
 * limit is checked first. */
static int create_file(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur < VGW_DEVICE_MEMORY_NBYTES)
    return -1;
  int fd = memfd_create("vgpu-device", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd >= 0 &&
      (ftruncate(fd, (off_t)VGW_DEVICE_MEMORY_NBYTES) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))) {
    close(fd);
    return -1;
  }
  return fd;
}

static bool map_file(CUdevice wire) {
  int fd = create_file();
  if (fd < 0)
    return false;
  void *at = alias_begin(wire);
  void *got = mmap(at, VGW_DEVICE_MEMORY_NBYTES, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, fd, 0);
  bool mapped = got == at && !vgs_send_vgpuDeviceFile(wire, fd);
  if (mapped)
    madvise(got, VGW_DEVICE_MEMORY_NBYTES, MADV_DONTDUMP);
  else if (got != MAP_FAILED)
    munmap(got, VGW_DEVICE_MEMORY_NBYTES);
  close(fd);
  return mapped;
}

void vgs_alias_open(CUdevice device) {
  if (!VGS_CLAIMS || !vgs_inventory()->simulated || vgs_session_attach() || !vgs_session_has_pinned_fd())
    return;
  CUdevice wire = vgs_device_wire(device);
  if (wire >= VGW_SIMULATED_DEVICES_MAX)
    return;
  pthread_mutex_lock(&lock);
  uint16_t epoch = vgs_session_epoch();
  if (files[wire].epoch != epoch) {
    if (files[wire].mapped)
      munmap(alias_begin(wire), VGW_DEVICE_MEMORY_NBYTES);
    bool mapped = map_file(wire);
    files[wire].epoch = epoch;
    __atomic_store_n(&files[wire].mapped, mapped, __ATOMIC_RELEASE);
    if (!mapped)
      vgs_log(VGS_LOG_INFO, "device %d's memory is not shared with this process: copies are used", device);
  }
  pthread_mutex_unlock(&lock);
}

void *vgs_alias_of(uint64_t address, uint64_t nbytes) {
  struct vgs_range range;
  uint64_t wire = (address - VGW_DEVICE_MEMORY_BEGIN) / VGW_DEVICE_MEMORY_NBYTES;
  if (address < VGW_DEVICE_MEMORY_BEGIN || wire >= VGW_SIMULATED_DEVICES_MAX ||
      !__atomic_load_n(&files[wire].mapped, __ATOMIC_ACQUIRE) || !vgs_range_find(address, &range) ||
      nbytes > range.nbytes - (address - range.base))
    return NULL;
  /* Memory imported from another process and mappings, of cuMemMap or made apart, are not in the file at that place. */
  if (range.kind == VGS_RANGE_IMPORTED || range.allocation || range.is_apart)
    return NULL;
  return (void *)(uintptr_t)(address + VGW_ALIAS_OFFSET);
}

EXPORT int vgpuDeviceIsSimulated(CUdevice device) {
  if (vgs_life_check() || !vgs_device(device))
    return -1;
  return vgs_inventory()->simulated;
}

EXPORT void *vgpuHostAlias(CUdeviceptr pointer) {
  struct vgs_range range;
  if (vgs_life_check())
    return NULL;
  if (vgs_range_find(pointer, &range) && vgs_range_is_host(&range))
    return range.shared ? (void *)(uintptr_t)pointer : NULL;
  return vgs_alias_of(pointer, 1);
}
