#ifndef VGT_FUZZ_FAULTS_H
#define VGT_FUZZ_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

void vgt_faults_init(void);
/* Calls count, and the chosen one fails, while this is on: the harness's own are not meant. */
void vgt_faults_arm(bool now);
/* How often a function was called; UINT64_MAX: there are no more. */
uint64_t vgt_faults_count(int function, const char **name);

#endif
