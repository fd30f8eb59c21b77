/* The interpreter of the generated table. */
#ifndef VGS_NVML_ANSWER_H
#define VGS_NVML_ANSWER_H

#include "vgs_nvml.h"

/* The exported function of row `index`. `words`: its arguments in order, pointers as numbers. */
nvmlReturn_t vgs_nvml_answer(unsigned index, const uint64_t *words);

/* Trace a call's result, and return it. */
nvmlReturn_t vgs_nvml_done(const char *name, nvmlReturn_t result);

#endif
