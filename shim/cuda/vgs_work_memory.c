/* Pinned memory where the channel shares memory, else memory of the worker alone. It is kept for later use and never
 * unmapped: unmapping would wait for streams that may be waiting for this very thread. */
#include "vgs_work_memory.h"
#include "vgs_api.h"
#include "vgs_enter.h"
#include "vgs_host_map.h"
#include "vgs_session.h"
#include <pthread.h>
#include <stdlib.h>

enum { LEAST_NBYTES = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vgs_work_memory *unused; /* of all contexts and sessions; memory of an ended one stays in the list */

static struct vgs_work_memory *take_unused(uint64_t nbytes) {
  pthread_mutex_lock(&lock);
  struct vgs_work_memory **link = &unused, *memory;
  while ((memory = *link) && (memory->nbytes != nbytes || memory->context_id != vgs_context_entered->wire_id ||
                              memory->epoch != vgs_session_epoch()))
    link = &memory->next;
  if (memory)
    *link = memory->next;
  pthread_mutex_unlock(&lock);
  return memory;
}

CUresult vgs_work_memory_acquire(uint64_t nbytes, struct vgs_work_memory **memory) {
  uint64_t rounded = LEAST_NBYTES;
  while (rounded < nbytes && rounded <= UINT64_MAX / 2)
    rounded *= 2; /* few sizes, so that they are used again */
  if (rounded < nbytes)
    return CUDA_ERROR_OUT_OF_MEMORY;
  if ((*memory = take_unused(rounded)))
    return CUDA_SUCCESS;
  struct vgs_work_memory *made = malloc(sizeof *made);
  if (!made)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *made = (struct vgs_work_memory){
      .nbytes = rounded, .context_id = vgs_context_entered->wire_id, .epoch = vgs_session_epoch()};
  void *mapped;
  CUresult result = vgs_host_map(rounded, &mapped);
  made->shared = !result;
  if (!result)
    made->address = (uintptr_t)mapped;
  else if (!vgs_session_error())
    result = vgs_host_reserve(rounded, &made->address);
  if (result)
    free(made);
  else
    *memory = made;
  return result;
}

void vgs_work_memory_release(struct vgs_work_memory *memory) {
  pthread_mutex_lock(&lock);
  memory->next = unused;
  unused = memory;
  pthread_mutex_unlock(&lock);
}
