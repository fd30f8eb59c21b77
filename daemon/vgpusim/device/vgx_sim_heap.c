/* The device heap behind malloc and free in kernels: one allocation of CU_LIMIT_MALLOC_HEAP_SIZE, taken at the first
 * malloc.
 *
 * The blocks' descriptions are outside the heap, so that a kernel that writes past its block cannot corrupt them.
 * Blocks have power-of-two sizes from 16 bytes; a freed one is used again for its own size only. That is simple, O(1),
 * and wastes at most half.
 *
 * Locking: heap->lock, a leaf; creating the heap takes the runtime lock. */
#include "vgx_sim_heap.h"

#include <stdlib.h>

#include "vgx_sim_runtime.h"

#define GRANULE_NBYTES 16ull
#define CLASSES 40u
#define NO_GRANULE UINT32_MAX

struct vgx_sim_heap {
  pthread_mutex_t lock;
  uint64_t base, nbytes, unused; /* `unused`: offset from which nothing was handed out yet */
  uint32_t first_free[CLASSES];
  uint32_t *next_free; /* by granule */
  uint8_t *block;      /* by granule: 0 no live block starts here, else its class + 1 */
};

static struct vgx_sim_heap *create(CUcontext ctx, uint64_t nbytes) {
  struct vgx_sim_heap *heap = calloc(1, sizeof *heap);
  uint64_t granules = nbytes / GRANULE_NBYTES;
  if (!heap || granules == 0 || granules >= NO_GRANULE) {
    free(heap);
    return NULL;
  }
  heap->next_free = calloc(granules, sizeof *heap->next_free);
  heap->block = calloc(granules, sizeof *heap->block);
  heap->nbytes = nbytes;
  for (uint32_t i = 0; i < CLASSES; i++)
    heap->first_free[i] = NO_GRANULE;
  pthread_mutex_init(&heap->lock, NULL);
  if (!heap->next_free || !heap->block ||
      vgx_sim_arena_allocate(&ctx->device->arena, nbytes, ctx, NULL, &heap->base) != CUDA_SUCCESS) {
    vgx_sim_heap_destroy(heap);
    return NULL;
  }
  return heap;
}

/* The arena frees the heap's memory together with the context. */
void vgx_sim_heap_destroy(struct vgx_sim_heap *heap) {
  if (!heap)
    return;
  free(heap->next_free);
  free(heap->block);
  pthread_mutex_destroy(&heap->lock);
  free(heap);
}

static struct vgx_sim_heap *heap_of(CUcontext ctx, bool may_create) {
  vgx_sim_lock();
  if (!ctx->heap && may_create)
    ctx->heap = create(ctx, ctx->limits[CU_LIMIT_MALLOC_HEAP_SIZE]);
  struct vgx_sim_heap *heap = ctx->heap;
  vgx_sim_unlock();
  return heap;
}

void *vgx_sim_heap_allocate(CUcontext ctx, uint64_t nbytes) {
  struct vgx_sim_heap *heap = heap_of(ctx, true);
  if (!heap || nbytes == 0 || nbytes > heap->nbytes)
    return NULL;
  uint32_t class = 0;
  while ((GRANULE_NBYTES << class) < nbytes)
    class++;
  uint64_t size = GRANULE_NBYTES << class;
  void *result = NULL;
  pthread_mutex_lock(&heap->lock);
  uint32_t granule = heap->first_free[class];
  if (granule != NO_GRANULE) {
    heap->first_free[class] = heap->next_free[granule];
  } else if (size <= heap->nbytes - heap->unused) {
    granule = (uint32_t)(heap->unused / GRANULE_NBYTES);
    heap->unused += size;
  }
  if (granule != NO_GRANULE) {
    heap->block[granule] = (uint8_t)(class + 1);
    result = (void *)(heap->base + granule * GRANULE_NBYTES);
  }
  pthread_mutex_unlock(&heap->lock);
  return result;
}

bool vgx_sim_heap_free(CUcontext ctx, void *pointer) {
  if (!pointer)
    return true;
  struct vgx_sim_heap *heap = heap_of(ctx, false);
  uint64_t address = (uint64_t)pointer;
  if (!heap || address < heap->base || address - heap->base >= heap->nbytes || (address - heap->base) % GRANULE_NBYTES)
    return false;
  uint32_t granule = (uint32_t)((address - heap->base) / GRANULE_NBYTES);
  pthread_mutex_lock(&heap->lock);
  bool live = heap->block[granule] != 0;
  if (live) {
    uint32_t class = heap->block[granule] - 1u;
    heap->block[granule] = 0;
    heap->next_free[granule] = heap->first_free[class];
    heap->first_free[class] = granule;
  }
  pthread_mutex_unlock(&heap->lock);
  return live;
}
