/* Unified addressing: an address of device memory has no other use in this process. The worker's driver chooses
 * addresses that are free in the worker, which says nothing about this process, and both put their mappings into the
 * same part of the address space. So each address that the driver chooses is claimed here before the program sees it (a
 * mapping without access or memory), as NVIDIA's driver does in its own process; memory whose address cannot be claimed
 * is freed and allocated at another one: by the driver, which may go on beside it, and after a few attempts at an
 * address of the client's choice (vgs_claiming.h, vgs_apart.h). */
#ifndef VGS_CLAIM_H
#define VGS_CLAIM_H

#include <stdbool.h>
#include <stdint.h>

#ifndef VGS_CLAIMS
#define VGS_CLAIMS 1 /* 0: the program is both client and worker, so device memory itself lies at the addresses */
#endif

/* A claim is rounded to whole chunks, so that most allocations fall into an existing one. */
enum { VGS_CLAIM_CHUNK_NBYTES = 2 << 20 };

/* Claim a range; a claim lasts until vgs_claim_fini. False: the program uses part of the range. Also true where the
 * system allows no further mappings: the range was then not checked. */
bool vgs_claim(uint64_t address, uint64_t nbytes);

/* The same for what cannot be placed elsewhere, such as "an imported allocation": a failure is logged. */
bool vgs_claim_only(uint64_t address, uint64_t nbytes, const char *what);

/* Whether the process uses nothing of a range now. */
bool vgs_claim_is_free(uint64_t address, uint64_t nbytes);

/* Where the system would put a mapping of this size now; 0: nowhere. */
uint64_t vgs_claim_find_free(uint64_t nbytes);

void vgs_claim_fini(void);

#endif
