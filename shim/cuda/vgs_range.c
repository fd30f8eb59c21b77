/* A treap (a search tree by base, a heap by random priority): insertion and removal stay logarithmic for programs with
 * hundreds of thousands of allocations, and lookups need only a shared lock. */
#include "vgs_range.h"
#include "vgs_claim.h"
#include "vgs_enter.h"
#include "vgs_region.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

struct node {
  struct vgs_range range;
  uint32_t priority;
  struct node *left, *right;
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct node *root;
static uint64_t last_buffer_id;
static uint32_t random_state = 0x9e3779b9;

static uint32_t next_random(void) { /* xorshift32 */
  random_state ^= random_state << 13;
  random_state ^= random_state >> 17;
  random_state ^= random_state << 5;
  return random_state;
}

/* Nodes with base < `base` to the left, the others to the right. */
static void split(struct node *tree, uint64_t base, struct node **left, struct node **right) {
  if (!tree)
    *left = *right = NULL;
  else if (tree->range.base < base) {
    *left = tree;
    split(tree->right, base, &tree->right, right);
  } else {
    *right = tree;
    split(tree->left, base, left, &tree->left);
  }
}

static struct node *merge(struct node *left, struct node *right) {
  if (!left || !right)
    return left ? left : right;
  if (left->priority > right->priority) {
    left->right = merge(left->right, right);
    return left;
  }
  right->left = merge(left, right->left);
  return right;
}

/* The range with the greatest base <= address. */
static struct node *floor_node(uint64_t address) {
  struct node *best = NULL;
  for (struct node *node = root; node;) {
    if (node->range.base <= address) {
      best = node;
      node = node->right;
    } else
      node = node->left;
  }
  return best;
}

static bool holds(const struct node *node, uint64_t address) {
  return node && address - node->range.base < node->range.nbytes;
}

static void insert(struct node *node) {
  struct node *left, *right;
  split(root, node->range.base, &left, &right);
  root = merge(merge(left, node), right);
}

static void detach(struct node *node) {
  struct node **link = &root;
  while (*link != node)
    link = node->range.base < (*link)->range.base ? &(*link)->left : &(*link)->right;
  *link = merge(node->left, node->right);
}

/* Some known range that shares a byte with `range`. */
static struct node *overlapping(const struct vgs_range *range) {
  struct node *last = floor_node(range->base + range->nbytes - 1);
  return last && last->range.base + last->range.nbytes > range->base ? last : NULL;
}

void (*vgs_range_ended)(const struct vgs_range *range);

static void end(struct node *node) {
  void (*ended)(const struct vgs_range *) = __atomic_load_n(&vgs_range_ended, __ATOMIC_ACQUIRE);
  if (ended && vgs_range_is_host(&node->range))
    ended(&node->range);
}

static CUresult add(struct vgs_range *range) {
  if (!range->nbytes || range->base > UINT64_MAX - range->nbytes)
    return CUDA_ERROR_INVALID_VALUE;
  struct node *node = calloc(1, sizeof *node);
  if (!node)
    return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_rwlock_wrlock(&lock);
  struct node *other = range->kind == VGS_RANGE_IMPORTED ? floor_node(range->base) : NULL;
  if (other && other->range.base == range->base && other->range.kind == VGS_RANGE_IMPORTED) {
    other->range.opens++;
    pthread_rwlock_unlock(&lock);
    free(node);
    return CUDA_SUCCESS;
  }
  range->opens = 1;
  while ((other = overlapping(range)) &&
         range->kind != VGS_RANGE_REGISTERED) { /* the overlapped range is stale: see vgs_range.h */
    detach(other);
    end(other);
    free(other);
  }
  bool overlaps = other;
  if (!overlaps) {
    range->buffer_id = ++last_buffer_id;
    node->range = *range;
    node->priority = next_random();
    insert(node);
    node = NULL;
  }
  pthread_rwlock_unlock(&lock);
  free(node);
  return overlaps ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : CUDA_SUCCESS;
}

static CUresult add_in_context(struct vgs_range *range, CUdevice device) {
  struct vgs_context *context = vgs_context_entered;
  range->context_id = context->wire_id;
  range->context = vgs_object_handle(context);
  range->device = device;
  return add(range);
}

CUresult vgs_range_add(struct vgs_range *range) {
  return vgs_context_entered ? add_in_context(range, vgs_context_entered->device) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult vgs_range_add_allocation(uint64_t base, uint64_t nbytes, enum vgs_range_kind kind, bool is_apart,
                                  CUdevice device) {
  struct vgs_range range = {.base = base, .nbytes = nbytes, .kind = kind, .is_apart = is_apart};
  return !vgs_context_entered || add_in_context(&range, device) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult vgs_range_add_mapping(struct vgs_range *range, const struct vgs_context *primary) {
  if (!primary)
    return CUDA_ERROR_OUT_OF_MEMORY;
  range->context_id = 0;
  range->context = vgs_object_handle(primary);
  range->device = primary->device;
  return add(range);
}

void vgs_range_add_variable(uint64_t address, uint64_t nbytes) {
  struct vgs_range fresh = {.base = address, .nbytes = nbytes, .kind = VGS_RANGE_VARIABLE};
  if (vgs_claim_only(address, nbytes, "a module's variable"))
    vgs_range_add(&fresh); /* on failure the range stays unknown, and the worker checks each copy instead */
}

bool vgs_range_find(uint64_t address, struct vgs_range *found) {
  pthread_rwlock_rdlock(&lock);
  struct node *node = floor_node(address);
  bool known = holds(node, address);
  if (known)
    *found = node->range;
  pthread_rwlock_unlock(&lock);
  return known;
}

static const struct node *next_host(const struct node *tree, uint32_t context_id, uint64_t from) {
  if (!tree)
    return NULL;
  bool below = tree->range.base < from;
  const struct node *found = below ? NULL : next_host(tree->left, context_id, from);
  if (!found && !below && tree->range.context_id == context_id && vgs_range_is_host(&tree->range))
    found = tree;
  return found ? found : next_host(tree->right, context_id, from);
}

bool vgs_range_next_host(uint32_t context_id, uint64_t from, struct vgs_range *found) {
  pthread_rwlock_rdlock(&lock);
  const struct node *node = next_host(root, context_id, from);
  if (node)
    *found = node->range;
  pthread_rwlock_unlock(&lock);
  return node;
}

void vgs_range_set_advice(const struct vgs_range *range) {
  pthread_rwlock_wrlock(&lock);
  struct node *node = floor_node(range->base);
  if (node && node->range.base == range->base && node->range.buffer_id == range->buffer_id) {
    node->range.preferred = range->preferred;
    node->range.prefetched = range->prefetched;
    node->range.accessed_by = range->accessed_by;
    node->range.read_mostly = range->read_mostly;
  }
  pthread_rwlock_unlock(&lock);
}

void vgs_range_set_device_address(const struct vgs_range *range) {
  pthread_rwlock_wrlock(&lock);
  struct node *node = floor_node(range->base);
  if (node && node->range.base == range->base && node->range.buffer_id == range->buffer_id)
    node->range.device_address = range->device_address;
  pthread_rwlock_unlock(&lock);
}

_Atomic bool vgs_range_any_sync_memops;

bool vgs_range_set_sync_memops(uint64_t address, bool sync_memops) {
  pthread_rwlock_wrlock(&lock);
  struct node *node = floor_node(address);
  bool known = node && address - node->range.base < node->range.nbytes;
  if (known) {
    node->range.sync_memops = sync_memops;
    if (sync_memops)
      vgs_range_any_sync_memops = true;
  }
  pthread_rwlock_unlock(&lock);
  return known;
}

bool vgs_range_is_sync_memops(uint64_t address) {
  struct vgs_range range;
  return vgs_range_find(address, &range) && range.sync_memops;
}

bool vgs_range_remove(uint64_t base, bool host, struct vgs_range *removed) {
  pthread_rwlock_wrlock(&lock);
  struct node *node = floor_node(base);
  bool known = node && node->range.base == base && vgs_range_is_host(&node->range) == host;
  if (known) {
    *removed = node->range;
    detach(node);
  }
  pthread_rwlock_unlock(&lock);
  if (known)
    free(node);
  return known;
}

bool vgs_range_end(uint64_t base) {
  pthread_rwlock_wrlock(&lock);
  struct node *node = floor_node(base);
  bool known = node && node->range.base == base && node->range.kind <= VGS_RANGE_GRAPH && !node->range.allocation;
  bool ended = known && node->range.kind != VGS_RANGE_GRAPH;
  if (ended)
    detach(node);
  pthread_rwlock_unlock(&lock);
  if (ended)
    free(node);
  return known;
}

bool vgs_range_close(uint64_t base) {
  pthread_rwlock_wrlock(&lock);
  struct node *node = floor_node(base);
  bool known = node && node->range.base == base && node->range.kind == VGS_RANGE_IMPORTED;
  bool last = known && --node->range.opens == 0;
  if (last)
    detach(node);
  pthread_rwlock_unlock(&lock);
  if (last)
    free(node);
  return known;
}

void vgs_range_unmap(const struct vgs_range *range) {
  /* A managed variable that is not shared lies over a claim, and belongs to no context. */
  bool mapped =
      range->kind == VGS_RANGE_PINNED || (range->kind == VGS_RANGE_MANAGED && (range->shared || range->context_id));
  if (mapped)
    munmap((void *)(uintptr_t)range->base, range->nbytes);
  if (mapped && range->shared)
    vgs_region_free_pinned(range->base);
}

/* Take the treap apart: the ranges that stay are merged again, the others are freed. Recursion is as deep as the treap,
 * about 2 log2(n). */
static struct node *filter(struct node *tree, uint32_t context_id, bool all) {
  if (!tree)
    return NULL;
  struct node *left = filter(tree->left, context_id, all), *right = filter(tree->right, context_id, all);
  if (!all && tree->range.context_id != context_id) {
    tree->left = left;
    tree->right = right;
    return tree;
  }
  end(tree);
  vgs_range_unmap(&tree->range);
  free(tree);
  return merge(left, right);
}

void vgs_range_remove_context(uint32_t context_id) {
  pthread_rwlock_wrlock(&lock);
  root = filter(root, context_id, false);
  pthread_rwlock_unlock(&lock);
}

void vgs_range_remove_all(void) {
  pthread_rwlock_wrlock(&lock);
  root = filter(root, 0, true);
  pthread_rwlock_unlock(&lock);
}

static void free_nodes(struct node *tree) {
  if (!tree)
    return;
  free_nodes(tree->left);
  free_nodes(tree->right);
  free(tree);
}

void vgs_range_fini(void) {
  free_nodes(root);
  root = NULL;
}
