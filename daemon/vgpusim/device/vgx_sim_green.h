/* Green contexts: part of a device's multiprocessors, with streams of their own, over the device's primary context. */
#ifndef VGX_SIM_GREEN_H
#define VGX_SIM_GREEN_H

#include "vgx_sim_internal.h"

#define VGX_SIM_MULTIPROCESSORS_MAX 512u

/* A set of a device's multiprocessors, a bit for each. */
struct vgx_sim_multiprocessors {
  uint64_t words[VGX_SIM_MULTIPROCESSORS_MAX / 64];
};

/* Never freed: a late call on one is answered. */
struct CUgreenCtx_st {
  uint32_t magic;
  uint64_t id;
  CUcontext primary; /* retained */
  CUcontext context; /* that stands for it; NULL: not asked for */
  struct vgx_sim_multiprocessors multiprocessors;
  uint32_t count;              /* of multiprocessors */
  struct CUstream_st hub;      /* internal: records and waits of the whole context are queued here */
  struct vgx_sim_marker *held; /* work that is submitted later starts after this; NULL: after nothing */
  CUgreenCtx next;             /* of the same primary context */
};

/* The multiprocessor that a thread with this number stands for; `green` NULL: the number itself. */
uint32_t vgx_sim_green_multiprocessor(const struct CUgreenCtx_st *green, uint32_t number);
/* How many multiprocessors a launch may use. */
int64_t vgx_sim_green_count(const struct vgx_sim_device *device, const struct CUgreenCtx_st *green);
bool vgx_sim_green_has(const struct vgx_sim_multiprocessors *set, uint32_t number);
uint32_t vgx_sim_green_size(const struct vgx_sim_multiprocessors *set);
/* End one, and those of a primary context that ends. Runtime lock held. */
void vgx_sim_green_end_one_locked(CUgreenCtx green);
void vgx_sim_green_end_locked(CUcontext primary);

#endif
