/* Running code that may touch memory it must not: kernels, and copies whose memory a client may take away. */
#ifndef VGX_SIM_FAULT_H
#define VGX_SIM_FAULT_H

#include <pthread.h>
#include <stdint.h>

#include "vgw_cuda.h"

#define VGX_SIM_NO_WARP UINT32_MAX

struct vgx_sim_fault {
  CUresult result;  /* 700, 716, 719, or the result passed to vgx_sim_leave */
  int signal;       /* signal number; 0: the body was left by vgx_sim_leave or a kick */
  uint64_t address; /* of the access, where the CPU tells */
  enum { VGX_SIM_ACCESS_UNKNOWN, VGX_SIM_ACCESS_READ, VGX_SIM_ACCESS_WRITE } access;
  uint32_t cta[3], warp; /* where in the kernel; warp VGX_SIM_NO_WARP: unknown */
  const char *message;
};

/* Run `body(argument)` on this thread. A memory fault, a trap, vgx_sim_leave, or a kick while *stop is nonzero (stop
 * may be NULL) ends it early: then the result is not 0 and *fault says why. Must not be nested. */
CUresult vgx_sim_guarded(const uint32_t *stop, void (*body)(void *), void *argument, struct vgx_sim_fault *fault);

/* End this thread's guarded body with `result`. `message` must stay valid until vgx_sim_guarded has returned. */
_Noreturn void vgx_sim_leave(CUresult result, const char *message);

/* Check an address that a kernel has passed to a service, directly
 * before it is read. An address that no kernel may reach ends the body
 * with 700. */
const void *vgx_sim_reach(uint64_t address);

/* Between these the body runs the simulator's own code, which may hold locks: kicks wait until service_end, and a fault
 * is a bug of the simulator. */
void vgx_sim_service_begin(void);
void vgx_sim_service_end(void);

/* Like service_end, but does not leave a stopped launch at once: the thread may end by itself. */
void vgx_sim_service_pause(void);

/* Make `thread` leave its guarded body if its stop word is set. */
void vgx_sim_kick(pthread_t thread);

/* Give this thread a stack for signals, so that a kernel's stack overflow is a fault like any other. */
void vgx_sim_fault_thread_init(void);

#endif
