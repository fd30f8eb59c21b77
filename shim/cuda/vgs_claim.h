/* Unified addressing: an address of device memory is one of nothing else in this process. The worker's driver chooses
 * addresses that are free there, which says nothing about this process, and both put their mappings into the same part
 * of the address space. So what it chooses is claimed here before the program sees it (a mapping without access or
 * memory), as NVIDIA's driver does in its own process; what cannot be claimed is allocated anew, elsewhere. */
#ifndef VGS_CLAIM_H
#define VGS_CLAIM_H

#include "vgw_cuda.h"
#include <stdbool.h>
#include <stdint.h>

#ifndef VGS_CLAIMS
#define VGS_CLAIMS 1 /* 0: in a program that is client and worker at once, where the addresses are those of memory */
#endif

/* Claim a range; what is claimed already stays so until vgs_claim_fini. False: something of the program's lies there.
 * Where the system allows no further mappings it is true: the range may be free, and was not looked at. */
bool vgs_claim(uint64_t address, uint64_t nbytes);

/* Ways to allocate device memory, and to give it back. `argument` is the caller's. */
struct vgs_maker {
  CUresult (*make)(void *argument, CUdeviceptr *address, uint64_t *nbytes);
  CUresult (*give_back)(void *argument, CUdeviceptr address);
};

/* Allocate at a claimed address. What was in the way is held while another is looked for, then given back. Errors:
 * make's; OUT_OF_MEMORY. */
CUresult vgs_claim_made(const struct vgs_maker *maker, void *argument, CUdeviceptr *address, uint64_t *nbytes);

void vgs_claim_fini(void);

#endif
