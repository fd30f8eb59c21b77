#include "vgs_handle.h"
#include "vgs_session.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { LEAF_BITS = 10, MIDDLE_BITS = 12, ROOT_BITS = 10 };
_Static_assert(LEAF_BITS + MIDDLE_BITS + ROOT_BITS == 32, "an id");

struct leaf {
  struct vgs_object *objects[1 << LEAF_BITS]; /* atomic */
  uint32_t live;
  struct leaf *next_free;
};

struct middle {
  struct leaf *leaves[1 << MIDDLE_BITS]; /* atomic */
};

static struct table {
  pthread_mutex_t lock; /* for everything but lookups */
  uint32_t last_id;
  struct middle *middles[1 << ROOT_BITS]; /* atomic */
  struct leaf *free_leaves;
  struct vgs_object *live, *free;
} tables[VGW_KIND_COUNT] = {[0 ... VGW_KIND_COUNT - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

static const struct vgs_object_type *types;

void vgs_object_set_types(const struct vgs_object_type all[VGW_KIND_COUNT]) { types = all; }

#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
#define STORE(place, value) __atomic_store_n(&(place), value, __ATOMIC_RELEASE)

static struct leaf *find_leaf(struct table *table, uint32_t id) {
  struct middle *middle = LOAD(table->middles[id >> (LEAF_BITS + MIDDLE_BITS)]);
  return middle ? LOAD(middle->leaves[id >> LEAF_BITS & ((1u << MIDDLE_BITS) - 1)]) : NULL;
}

static struct leaf *make_leaf(struct table *table, uint32_t id) {
  struct middle **middle = &table->middles[id >> (LEAF_BITS + MIDDLE_BITS)];
  if (!*middle) {
    struct middle *fresh = calloc(1, sizeof *fresh);
    if (!fresh)
      return NULL;
    STORE(*middle, fresh);
  }
  struct leaf **place = &(*middle)->leaves[id >> LEAF_BITS & ((1u << MIDDLE_BITS) - 1)];
  if (!*place) {
    struct leaf *leaf = table->free_leaves;
    if (leaf)
      table->free_leaves = leaf->next_free;
    else if (!(leaf = calloc(1, sizeof *leaf)))
      return NULL;
    STORE(*place, leaf);
  }
  return *place;
}

/* A leaf whose ids are all used up and whose objects are all destroyed is reused for another range of ids. */
static void retire_leaf(struct table *table, uint32_t id) {
  struct leaf *leaf = find_leaf(table, id);
  if (leaf->live || id >> LEAF_BITS == table->last_id >> LEAF_BITS)
    return;
  struct middle *middle = table->middles[id >> (LEAF_BITS + MIDDLE_BITS)];
  STORE(middle->leaves[id >> LEAF_BITS & ((1u << MIDDLE_BITS) - 1)], NULL);
  leaf->next_free = table->free_leaves;
  table->free_leaves = leaf;
}

/* Kinds without state of their own have only the header. */
static size_t object_nbytes(enum vgw_kind kind) {
  size_t nbytes = types[kind].nbytes;
  return nbytes ? nbytes : sizeof(struct vgs_object);
}

static struct vgs_object *take_memory(struct table *table, enum vgw_kind kind) {
  struct vgs_object *object = table->free;
  if (object)
    table->free = object->next;
  else
    object = calloc(1, object_nbytes(kind));
  return object;
}

void *vgs_object_create(enum vgw_kind kind, uint32_t context_id) {
  struct table *table = &tables[kind];
  pthread_mutex_lock(&table->lock);
  uint32_t id = table->last_id + 1;
  struct leaf *leaf = id ? make_leaf(table, id) : NULL;
  struct vgs_object *object = leaf ? take_memory(table, kind) : NULL;
  if (object) {
    memset(object + 1, 0, object_nbytes(kind) - sizeof *object);
    object->kind = (uint16_t)kind;
    object->epoch = vgs_session_epoch();
    object->context_id = context_id;
    object->previous = NULL;
    object->next = table->live;
    if (table->live)
      table->live->previous = object;
    table->live = object;
    table->last_id = id;
    leaf->live++;
    STORE(object->id, id);
    STORE(leaf->objects[id & ((1u << LEAF_BITS) - 1)], object);
  }
  pthread_mutex_unlock(&table->lock);
  return object;
}

uint32_t vgs_object_reserve_id(enum vgw_kind kind) {
  struct table *table = &tables[kind];
  pthread_mutex_lock(&table->lock);
  uint32_t id = table->last_id + 1;
  if (id)
    table->last_id = id;
  pthread_mutex_unlock(&table->lock);
  return id;
}

void *vgs_object_find(enum vgw_kind kind, const void *handle) {
  uint64_t value = (uintptr_t)handle;
  if (value >> 48 != (uint64_t)kind || (uint16_t)(value >> 32) != vgs_session_epoch())
    return NULL;
  return vgs_object_at(kind, (uint32_t)value);
}

void *vgs_object_at(enum vgw_kind kind, uint32_t id) {
  if (!id)
    return NULL;
  struct leaf *leaf = find_leaf(&tables[kind], id);
  struct vgs_object *object = leaf ? LOAD(leaf->objects[id & ((1u << LEAF_BITS) - 1)]) : NULL;
  return object && LOAD(object->id) == id ? object : NULL;
}

static void destroy_locked(struct table *table, struct vgs_object *object) {
  uint32_t id = object->id;
  struct leaf *leaf = find_leaf(table, id);
  STORE(leaf->objects[id & ((1u << LEAF_BITS) - 1)], NULL);
  STORE(object->id, 0);
  leaf->live--;
  if (types[object->kind].fini)
    types[object->kind].fini(object);
  if (object->previous)
    object->previous->next = object->next;
  else
    table->live = object->next;
  if (object->next)
    object->next->previous = object->previous;
  object->next = table->free;
  table->free = object;
  retire_leaf(table, id);
}

void vgs_object_destroy(void *object) {
  struct vgs_object *header = object;
  struct table *table = &tables[header->kind];
  pthread_mutex_lock(&table->lock);
  if (header->id) /* two threads destroying one object: the second finds it gone */
    destroy_locked(table, header);
  pthread_mutex_unlock(&table->lock);
}

static void destroy_matching(struct table *table, uint32_t context_id, bool all) {
  pthread_mutex_lock(&table->lock);
  struct vgs_object *next;
  for (struct vgs_object *object = table->live; object; object = next) {
    next = object->next;
    if (all || object->context_id == context_id)
      destroy_locked(table, object);
  }
  pthread_mutex_unlock(&table->lock);
}

void vgs_object_destroy_context(uint32_t context_id) {
  for (int kind = 1; kind < VGW_KIND_COUNT; kind++)
    if (context_id)
      destroy_matching(&tables[kind], context_id, false);
}

void vgs_object_destroy_all(void) {
  for (int kind = 1; kind < VGW_KIND_COUNT; kind++)
    if (kind != VGW_KIND_CONTEXT)
      destroy_matching(&tables[kind], 0, true);
}

void vgs_object_fini(void) {
  for (int kind = 1; kind < VGW_KIND_COUNT; kind++) {
    struct table *table = &tables[kind];
    destroy_matching(table, 0, true);
    for (struct vgs_object *object = table->free, *next; object; object = next) {
      next = object->next;
      free(object);
    }
    for (int i = 0; i < 1 << ROOT_BITS; i++) {
      for (int j = 0; table->middles[i] && j < 1 << MIDDLE_BITS; j++)
        free(table->middles[i]->leaves[j]);
      free(table->middles[i]);
    }
    for (struct leaf *leaf = table->free_leaves, *next; leaf; leaf = next) {
      next = leaf->next_free;
      free(leaf);
    }
  }
}

CUresult vgs_handle_ids(enum vgw_kind kind, const void *const *handles, size_t count, CUresult wrong, uint32_t **ids) {
  if (count && !handles)
    return CUDA_ERROR_INVALID_VALUE;
  uint32_t *made = malloc((count + 1) * sizeof *made);
  if (!made)
    return CUDA_ERROR_OUT_OF_MEMORY;
  for (size_t i = 0; i < count; i++) {
    const struct vgs_object *object = vgs_object_find(kind, handles[i]);
    if (!object) {
      free(made);
      return wrong;
    }
    made[i] = object->id;
  }
  *ids = made;
  return CUDA_SUCCESS;
}

void vgs_free_array(void *array) { free(*(void **)array); }
