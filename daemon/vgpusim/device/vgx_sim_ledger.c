/* The ledger of device memory. No locks: a row has one writer. Two that allocate the last bytes at once may both be
 * refused, and never both succeed: each writes its own row before it counts. */
#include "vgx_sim_ledger.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include "vgx_sim.h"
#include "vgx_sim_internal.h"

void vgx_sim_share_write(const struct vgx_sim_share *share, uint64_t nbytes) {
  if (share->ledger)
    __atomic_store_n(&share->ledger->used_nbytes[share->row][share->device], nbytes, __ATOMIC_SEQ_CST);
}

uint64_t vgx_sim_share_total(const struct vgx_sim_share *share, uint64_t otherwise) {
  const struct vgx_sim_ledger *ledger = share->ledger;
  if (!ledger)
    return otherwise;
  uint64_t total = 0, rows = __atomic_load_n(&ledger->row_count, __ATOMIC_SEQ_CST);
  for (uint64_t i = 0; i < rows && i < VGX_SIM_LEDGER_ROWS; i++)
    if (__builtin_add_overflow(total, __atomic_load_n(&ledger->used_nbytes[i][share->device], __ATOMIC_SEQ_CST),
                               &total))
      return UINT64_MAX;
  return total;
}

CUresult vgx_sim_set_ledger(int fd, uint32_t row) {
  struct stat st;
  if (row >= VGX_SIM_LEDGER_ROWS || fstat(fd, &st) != 0 || (uint64_t)st.st_size < sizeof(struct vgx_sim_ledger))
    return CUDA_ERROR_INVALID_VALUE;
  struct vgx_sim_ledger *ledger = mmap(NULL, sizeof *ledger, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (ledger == MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  for (uint32_t i = 0; i < VGX_SIM_DEVICES_MAX; i++) {
    struct vgx_sim_device *device = vgx_sim_device_at((CUdevice)i);
    if (device)
      vgx_sim_arena_join(&device->arena, (struct vgx_sim_share){ledger, row, i});
  }
  return CUDA_SUCCESS;
}
