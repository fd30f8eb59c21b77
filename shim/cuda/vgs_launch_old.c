/* Launches as of CUDA 1 to 3: a function keeps its block's shape and its parameters, set one by one, between launches.
 * A program that uses one function from several threads must serialise that itself (driver's manual). */
#include "vgs_launch_old.h"
#include "vgs_api.h"
#include "vgs_kernel.h"
#include "vgs_stream.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMS_NBYTES = 32764 }; /* of CUDA 12.1 and later; 4,096 before. An H200 accepts more than 4,096, too. */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct state {
  CUfunction function; /* handles are never reused within a session */
  unsigned block[3], shared_nbytes, nbytes;
  char params[PARAMS_NBYTES];
  struct state *next;
} *states;

static struct state *find_locked(CUfunction function) {
  struct state *state = states;
  while (state && state->function != function)
    state = state->next;
  if (!state && vgs_kernel_find(function) && (state = calloc(1, sizeof *state))) {
    *state = (struct state){.function = function, .block = {1, 1, 1}, .next = states};
    states = state;
  }
  return state;
}

static CUresult missing(CUfunction function) {
  return vgs_kernel_find(function) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_HANDLE;
}

CUresult vgs_cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  if (x < 1 || y < 1 || z < 1)
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  struct state *state = find_locked(hfunc);
  if (state) {
    state->block[0] = (unsigned)x;
    state->block[1] = (unsigned)y;
    state->block[2] = (unsigned)z;
  }
  pthread_mutex_unlock(&lock);
  return state ? CUDA_SUCCESS : missing(hfunc);
}

CUresult vgs_cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  pthread_mutex_lock(&lock);
  struct state *state = find_locked(hfunc);
  if (state)
    state->shared_nbytes = bytes;
  pthread_mutex_unlock(&lock);
  return state ? CUDA_SUCCESS : missing(hfunc);
}

CUresult vgs_param_set_texref(CUfunction function, int unit, uint32_t texref) {
  enum { DEFAULT_UNIT = -1 };
  (void)texref; /* cuModuleGetTexRef has returned it */
  if (!vgs_kernel_find(function))
    return CUDA_ERROR_INVALID_HANDLE;
  return unit == DEFAULT_UNIT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vgs_cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  if (numbytes > PARAMS_NBYTES)
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  struct state *state = find_locked(hfunc);
  if (state)
    state->nbytes = numbytes;
  pthread_mutex_unlock(&lock);
  return state ? CUDA_SUCCESS : missing(hfunc);
}

CUresult vgs_cuParamSetv(CUfunction hfunc, int offset, void *source, unsigned int numbytes) {
  if (offset < 0 || offset > PARAMS_NBYTES || numbytes > PARAMS_NBYTES - (unsigned)offset || (!source && numbytes))
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  struct state *state = find_locked(hfunc);
  if (state && numbytes)
    memcpy(state->params + offset, source, numbytes);
  pthread_mutex_unlock(&lock);
  return state ? CUDA_SUCCESS : missing(hfunc);
}

CUresult vgs_cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  return vgs_cuParamSetv(hfunc, offset, &value, sizeof value);
}

CUresult vgs_cuParamSetf(CUfunction hfunc, int offset, float value) {
  return vgs_cuParamSetv(hfunc, offset, &value, sizeof value);
}

CUresult vgs_cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
  enum { BUFFER_POINTER = 1, BUFFER_SIZE = 2 }; /* CU_LAUNCH_PARAM_... */
  char params[PARAMS_NBYTES];
  if (grid_width < 1 || grid_height < 1)
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  const struct state *found = find_locked(f);
  if (!found) {
    pthread_mutex_unlock(&lock);
    return missing(f);
  }
  unsigned block[3] = {found->block[0], found->block[1], found->block[2]}, shared_nbytes = found->shared_nbytes;
  size_t nbytes = found->nbytes;
  memcpy(params, found->params, nbytes);
  pthread_mutex_unlock(&lock);
  void *extra[] = {(void *)BUFFER_POINTER, params, (void *)BUFFER_SIZE, &nbytes, NULL};
  return vgs_cuLaunchKernel(f, (unsigned)grid_width, (unsigned)grid_height, 1, block[0], block[1], block[2],
                            shared_nbytes, hStream, NULL, extra);
}

CUresult vgs_cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  return vgs_cuLaunchGridAsync(f, grid_width, grid_height, vgs_stream_default());
}

CUresult vgs_cuLaunch(CUfunction f) { return vgs_cuLaunchGrid(f, 1, 1); }
