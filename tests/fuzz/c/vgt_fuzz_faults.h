#ifndef VGT_FUZZ_FAULTS_H
#define VGT_FUZZ_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

void vgt_faults_init(void);
/* Calls are counted, and the chosen one fails, only while this is on; it is off while a session begins or ends. */
void vgt_faults_arm(bool now);

/* While armed, have every `period`-th call of each function fail but malloc, without which a session ends; 0: only the
 * one that VGPU_FAULTS names. */
void vgt_faults_every(uint32_t period);
/* The name of function number `function`, and how often it was called; UINT64_MAX: no such function. */
uint64_t vgt_faults_count(int function, const char **name);
/* Count a call of the driver's; whether it is the one that fails. Only with VGT_FAULTS. */
bool vgt_faults_driver_fails(void);

#endif
