/* Words of memory that streams wait for and write. */
#ifndef VGS_WORD_H
#define VGS_WORD_H

#include "vgw_cuda.h"
#include <stdbool.h>
#include <stdint.h>

/* What the device calls an aligned word of memory that it reaches; 0: it is none. */
CUdeviceptr vgs_word_address(CUdeviceptr address, uint64_t nbytes);

/* Whether operations name such words, by the device's address. */
bool vgs_words_are_known(const CUstreamBatchMemOpParams *params, unsigned count);

#endif
