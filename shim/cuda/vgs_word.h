/* Words of memory that streams wait for and write. */
#ifndef VGS_WORD_H
#define VGS_WORD_H

#include "vgw_cuda.h"
#include <stdbool.h>
#include <stdint.h>

/* The device's address of an aligned word; 0: not aligned, or not reachable by the device. */
CUdeviceptr vgs_word_address(CUdeviceptr address, uint64_t nbytes);

/* Whether each wait and write operation names an aligned word, by the device's address. */
bool vgs_words_are_known(const CUstreamBatchMemOpParams *params, unsigned count);

#endif
