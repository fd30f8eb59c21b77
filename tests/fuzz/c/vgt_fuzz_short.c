/* Failing allocations of host memory and a full disk. */
#include "vgt_fuzz_driver.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/uio.h>

#include "vgx_charge.h"

/* The linker puts these in front of the executor's own functions and the C library's (tests/fuzz/build.py,
 * SHORT_OF_MEMORY): some entries of the account of device memory, which need memory of the host, cannot be made, and a
 * recording's file takes a part of what is written, or nothing, or has no room for a moment. */
enum { CHARGES = 61, WRITES = 50 };

static _Atomic enum vgt_accounts accounts;
static atomic_bool disk_full;

void vgt_driver_accounts(enum vgt_accounts how) { accounts = how; }
void vgt_driver_disk_full(bool is_full) { disk_full = is_full; }

static bool has_entry(_Atomic uint32_t *turn) {
  enum vgt_accounts how = accounts;
  return how == VGT_ACCOUNTS_WHOLE || (how == VGT_ACCOUNTS_PARTLY && ++*turn % CHARGES);
}

bool __real_vgx_charge_add(enum vgx_charge_kind kind, uint64_t key, CUdevice device, uint64_t nbytes,
                           CUcontext context);
bool __wrap_vgx_charge_add(enum vgx_charge_kind kind, uint64_t key, CUdevice device, uint64_t nbytes,
                           CUcontext context);
bool __wrap_vgx_charge_add(enum vgx_charge_kind kind, uint64_t key, CUdevice device, uint64_t nbytes,
                           CUcontext context) {
  static _Atomic uint32_t turns[VGX_CHARGE_CONTEXT + 1];
  return has_entry(&turns[kind]) && __real_vgx_charge_add(kind, key, device, nbytes, context);
}

bool __real_vgx_charge_map(uint64_t address, uint64_t span, uint64_t handle);
bool __wrap_vgx_charge_map(uint64_t address, uint64_t span, uint64_t handle);
bool __wrap_vgx_charge_map(uint64_t address, uint64_t span, uint64_t handle) {
  static _Atomic uint32_t turn;
  return has_entry(&turn) && __real_vgx_charge_map(address, span, handle);
}

ssize_t __real_writev(int fd, const struct iovec *pieces, int count);
ssize_t __wrap_writev(int fd, const struct iovec *pieces, int count);
ssize_t __wrap_writev(int fd, const struct iovec *pieces, int count) {
  static _Atomic uint32_t turns;
  uint32_t turn = ++turns;
  struct iovec half = {pieces[0].iov_base, pieces[0].iov_len / 2};
  if (turn % WRITES == 1 || turn % WRITES == 3 || disk_full) {
    errno = disk_full ? ENOSPC : turn % WRITES == 1 ? EINTR : EAGAIN;
    return -1;
  }
  return turn % WRITES == 2 && half.iov_len ? __real_writev(fd, &half, 1) : __real_writev(fd, pieces, count);
}
