/* Copies of boxes of tensors. */
#ifndef VGX_SIM_TENSOR_H
#define VGX_SIM_TENSOR_H

#include <stdbool.h>
#include <stdint.h>

/* For the lanes in `mask`; rows and forms are those of codegen/emit_tensor_copy.py. NULL, or what is wrong. */
const char *vgx_sim_tensor_copy(uint64_t form, uint32_t mask, const uint64_t *in, uint64_t *out);

/* Whether what is wrong is CUDA_ERROR_ILLEGAL_INSTRUCTION. */
bool vgx_sim_tensor_is_illegal(const char *wrong);

#endif
