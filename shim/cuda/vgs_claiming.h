/* Attempts to allocate device memory at an address that this process does not use (vgs_claim.h). */
#ifndef VGS_CLAIMING_H
#define VGS_CLAIMING_H

#include "vgw_cuda.h"
#include <stdbool.h>
#include <stdint.h>

/* One allocation at a claimed address. An allocation that overlaps the program's memory is held while another one is
 * made, so that the address is not returned again. A driver puts neighbours next to one another, and a program may have
 * several GB mapped there: after a few attempts the memory is made apart. Where that fails (a share denies it, a graph
 * allocates), each further attempt is preceded by a blocker, which occupies more and more addresses in the worker.
 * Blockers are reservations of addresses where possible, and else memory, of which they take a part of what is free
 * only, as other tenants may need it. An import of cuIpc is closed before the next attempt, and its addresses reserved.
 * Allocations of graphs have one attempt only. */
enum { VGS_CLAIM_TRIES = 16, VGS_CLAIM_BLOCKERS = 3 * VGS_CLAIM_TRIES };
struct vgs_claim_blocker {
  CUdeviceptr address;
  uint64_t nbytes; /* of a reservation; 0: allocated memory */
  bool there;      /* a reservation that lies where it was wanted */
};
struct vgs_claiming {
  CUdeviceptr rejected[VGS_CLAIM_TRIES]; /* rejected allocations that are still allocated */
  int count;                             /* number of entries in `rejected` */
  int tries;                             /* number of allocations rejected so far, also of those freed since */
  CUdeviceptr first, last;               /* addresses of the first and of the last rejected allocation */
  uint64_t nbytes;                       /* size of each allocation */
  uint64_t alignment;                    /* of addresses without memory; 0: any */
  bool apart, was_apart;                 /* the next attempt is made apart; one has been */
  CUresult apart_result;                 /* what that one answered */
  bool up;                               /* the last rejected allocation lies above the one before it */
  bool releasing;                        /* the caller must free the allocations in `rejected` */
  CUdeviceptr released;                  /* the allocation that the caller was last told to free */
  bool ended;                            /* no further attempt is made */
  bool failed;                           /* the last attempt failed */
  bool is_memory;                        /* not only addresses */
  CUdevice device;                       /* on which the memory is */
  bool is_imported;                      /* memory of another client */
  bool is_single;                        /* while it is open, the worker would open it there again */
  bool is_ordered;                       /* a stream-ordered allocation: no call may wait for the device */
  bool in_pool;                          /* a rejected allocation returns to a pool when it is freed */
  bool gave_back;                        /* rejected allocations were freed, to have memory for the next attempt */
  bool asked;                            /* the amount of free memory has been asked for */
  uint64_t memory_nbytes;                /* memory that blockers may still take */
  struct vgs_claim_blocker blockers[VGS_CLAIM_BLOCKERS];
  int blocked; /* number of blockers */
};

/* Called before each attempt: whether this one is made here, at an address of the client's choice, and its result. */
bool vgs_claim_apart(struct vgs_claiming *claiming, CUdeviceptr *address, CUresult *result);

/* Called after each attempt, with its result: whether to make another one. OUT_OF_MEMORY: too many attempts. */
bool vgs_claim_made(struct vgs_claiming *claiming, CUresult *result, CUdeviceptr address, uint64_t nbytes);

/* Called after that until it returns false: the next address to release. */
bool vgs_claim_rejected(struct vgs_claiming *claiming, CUdeviceptr *address);

/* Called when a context ends: rejected allocations of pools may have ended with it. */
void vgs_claim_remove_kept(void);

#endif
