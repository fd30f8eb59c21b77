/* Memory for bytes on their way between the program's memory and the device's. */
#ifndef VGS_WORK_MEMORY_H
#define VGS_WORK_MEMORY_H

#include "vgw_cuda.h"
#include <stdbool.h>
#include <stdint.h>

/* Memory the worker reaches, for bytes on their way. */
struct vgs_work_memory {
  uint64_t address, nbytes;
  bool shared; /* with this process, at that address */
  uint32_t context_id;
  uint16_t epoch;
  struct vgs_work_memory *next;
};
CUresult vgs_work_memory_acquire(uint64_t nbytes, struct vgs_work_memory **memory);
void vgs_work_memory_release(struct vgs_work_memory *memory);

#endif
