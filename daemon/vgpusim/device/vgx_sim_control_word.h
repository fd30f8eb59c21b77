/* The processor's floating point control word: rounding, and whether subnormal numbers count as zero. */
#ifndef VGX_SIM_CONTROL_WORD_H
#define VGX_SIM_CONTROL_WORD_H

#include <stdint.h>

#if defined(__x86_64__)
static inline uint32_t vgx_sim_control_word(void) { return __builtin_ia32_stmxcsr(); }
static inline void vgx_sim_set_control_word(uint32_t word) { __builtin_ia32_ldmxcsr(word); }
#else
static inline uint32_t vgx_sim_control_word(void) { return 0; }
static inline void vgx_sim_set_control_word(uint32_t word) { (void)word; }
#endif

#endif
