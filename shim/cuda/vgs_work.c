#include "vgs_work.h"
#include "vgw_wire.h"
#include <pthread.h>
#include <stdlib.h>

enum { PLACES_MAX = 1 << 24 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Indexed by the low bits of an id. An entry is reused when its work is gone: no callback can name that any more. */
static struct place {
  struct vgs_work *work;
  uint32_t next_free;
} *places;
static uint32_t place_count, first_free;

static uint32_t place_of(uint32_t id) { return id & (VGW_CALLBACK_WHOLE_COPY - 1); }

/* Under `lock`; place 0 stays empty. 0: out of memory. */
static uint32_t take_place(struct vgs_work *work) {
  if (!first_free) {
    uint32_t count = place_count ? 2 * place_count : 64;
    struct place *grown = count <= PLACES_MAX ? realloc(places, count * sizeof *grown) : NULL;
    if (!grown)
      return 0;
    places = grown;
    for (uint32_t i = count; i-- > (place_count ? place_count : 1);) {
      places[i] = (struct place){NULL, first_free};
      first_free = i;
    }
    places[0] = (struct place){0};
    place_count = count;
  }
  uint32_t place = first_free;
  first_free = places[place].next_free;
  places[place].work = work;
  return place;
}

bool vgs_work_init(struct vgs_work *work, uint32_t refs, uint32_t marks) {
  work->refs = refs;
  pthread_mutex_lock(&lock);
  uint32_t place = take_place(work);
  work->id = place | VGW_CALLBACK_OF_GRAPH | marks;
  pthread_mutex_unlock(&lock);
  return place;
}

uint32_t vgs_work_id(const struct vgs_work *work) { return work->id; }

static void unref(struct vgs_work *work, uint32_t refs) {
  pthread_mutex_lock(&lock);
  bool last = (work->refs -= refs) == 0;
  if (last) {
    places[place_of(work->id)] = (struct place){NULL, first_free};
    first_free = place_of(work->id);
  }
  pthread_mutex_unlock(&lock);
  if (!last)
    return;
  if (work->fini)
    work->fini(work);
  free(work);
}

void vgs_work_unref(struct vgs_work *work) { unref(work, 1); }

struct vgs_work *vgs_work_find(uint32_t callback) {
  pthread_mutex_lock(&lock);
  uint32_t place = place_of(callback);
  struct vgs_work *work = place < place_count ? places[place].work : NULL;
  if (work && work->id == callback)
    work->refs++;
  else
    work = NULL;
  pthread_mutex_unlock(&lock);
  return work;
}

void vgs_work_run(uint32_t callback) {
  struct vgs_work *work = vgs_work_find(callback);
  if (!work)
    return;
  if (work->run) /* a user object has nothing to run */
    work->run(work);
  vgs_work_unref(work);
}

/* --- the program's host functions --- */

struct function {
  struct vgs_work work;
  CUhostFn function;
  void *user_data;
};

static void run_function(struct vgs_work *work) {
  const struct function *wanted = (const struct function *)work;
  wanted->function(wanted->user_data);
}

struct vgs_work *vgs_work_function(CUhostFn function, void *user_data) {
  struct function *made = malloc(sizeof *made);
  if (!made)
    return NULL;
  *made = (struct function){.work = {.run = run_function}, .function = function, .user_data = user_data};
  if (vgs_work_init(&made->work, 1, 0))
    return &made->work;
  free(made);
  return NULL;
}

bool vgs_work_params(uint32_t callback, CUDA_HOST_NODE_PARAMS *params) {
  struct vgs_work *work = vgs_work_find(callback);
  bool is_program = work && work->run == run_function;
  if (is_program) {
    const struct function *wanted = (const struct function *)work;
    *params = (CUDA_HOST_NODE_PARAMS){.fn = wanted->function, .userData = wanted->user_data};
  }
  if (work)
    vgs_work_unref(work);
  return is_program;
}

/* --- user objects --- */

struct user_object {
  struct vgs_work work;
  CUhostFn destroy;
  void *user_data;
  uint32_t program_refs; /* how many of the work's references the program holds */
};

static void fini_user_object(struct vgs_work *work) {
  const struct user_object *object = (const struct user_object *)work;
  object->destroy(object->user_data);
}

struct vgs_work *vgs_work_user_object(CUhostFn destroy, void *user_data, uint32_t refs) {
  struct user_object *made = malloc(sizeof *made);
  if (!made)
    return NULL;
  *made = (struct user_object){
      .work = {.fini = fini_user_object}, .destroy = destroy, .user_data = user_data, .program_refs = refs};
  if (vgs_work_init(&made->work, refs, 0))
    return &made->work;
  free(made);
  return NULL;
}

struct vgs_work *vgs_work_find_user_object(uint32_t id) {
  struct vgs_work *work = vgs_work_find(id);
  if (!work || work->fini == fini_user_object)
    return work;
  vgs_work_unref(work);
  return NULL;
}

bool vgs_work_ref_program(struct vgs_work *work, uint32_t refs) {
  uint32_t sum;
  pthread_mutex_lock(&lock);
  bool fits = !__builtin_add_overflow(work->refs, refs, &sum);
  if (fits) {
    work->refs = sum;
    ((struct user_object *)work)->program_refs += refs; /* at most the work's `refs` */
  }
  pthread_mutex_unlock(&lock);
  return fits;
}

bool vgs_work_unref_program(struct vgs_work *work, uint32_t refs) {
  pthread_mutex_lock(&lock);
  bool held = refs <= ((struct user_object *)work)->program_refs;
  if (held)
    ((struct user_object *)work)->program_refs -= refs;
  pthread_mutex_unlock(&lock);
  if (held)
    unref(work, refs);
  return held;
}

/* --- what graphs keep --- */

static bool make_room(struct vgs_works *works, uint32_t more) {
  if (more <= works->capacity - works->count)
    return true;
  uint32_t capacity;
  if (__builtin_mul_overflow(works->capacity, 2, &capacity) || __builtin_add_overflow(capacity, more, &capacity))
    return false;
  struct vgs_kept *grown = realloc(works->items, capacity * sizeof *grown);
  if (!grown)
    return false;
  works->items = grown;
  works->capacity = capacity;
  return true;
}

/* The caller has reserved capacity. */
static void append(struct vgs_works *works, struct vgs_kept kept) {
  works->items[works->count++] = kept;
  works->pageable += kept.work->pageable;
}

/* Move the works kept for one node to `old`. The caller holds `lock`. */
static bool take_out(struct vgs_works *works, uint32_t node, struct vgs_works *old) {
  uint32_t found = 0, left = 0;
  for (uint32_t i = 0; i < works->count; i++)
    found += works->items[i].node == node;
  if (!make_room(old, found))
    return false;
  for (uint32_t i = 0; found && i < works->count; i++) {
    struct vgs_kept kept = works->items[i];
    if (kept.node == node) {
      append(old, kept);
      works->pageable -= kept.work->pageable;
    } else {
      works->items[left++] = kept;
    }
  }
  if (found)
    works->count = left;
  return true;
}

/* Add the works of `others`. With `as_they_are` each keeps its own node. `others` may be `works` itself. */
static bool keep(struct vgs_works *works, const struct vgs_works *others, bool as_they_are, uint32_t node,
                 struct vgs_works *old) {
  pthread_mutex_lock(&lock);
  uint32_t more = others->count;
  bool room = make_room(works, more) && (!node || take_out(works, node, old));
  for (uint32_t i = 0; room && i < more; i++) {
    struct vgs_work *work = others->items[i].work;
    uint32_t refs = others->items[i].refs;
    append(works, (struct vgs_kept){work, as_they_are ? others->items[i].node : node, refs});
    work->refs += refs;
  }
  pthread_mutex_unlock(&lock);
  return room;
}

bool vgs_works_add(struct vgs_works *works, struct vgs_work *work, uint32_t node, struct vgs_works *old) {
  struct vgs_kept one = {work, node, 1};
  return keep(works, &(struct vgs_works){.items = &one, .count = 1}, false, node, old);
}

bool vgs_works_add_user_object(struct vgs_works *works, struct vgs_work *work, uint32_t refs) {
  struct vgs_kept one = {work, 0, refs};
  return keep(works, &(struct vgs_works){.items = &one, .count = 1}, false, 0, NULL);
}

bool vgs_works_remove_user_object(struct vgs_works *works, struct vgs_work *work, uint32_t refs) {
  uint32_t held = 0, left = refs;
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < works->count && held < refs; i++)
    held += works->items[i].work == work ? works->items[i].refs : 0;
  for (uint32_t i = 0, count = held < refs ? 0 : works->count; i < count; i++) {
    struct vgs_kept *kept = &works->items[i];
    uint32_t part = kept->work != work ? 0 : kept->refs < left ? kept->refs : left;
    kept->refs -= part; /* an entry without references stays until the graph is destroyed: it is small */
    left -= part;
  }
  pthread_mutex_unlock(&lock);
  if (held < refs)
    return false;
  unref(work, refs);
  return true;
}

bool vgs_works_add_all(struct vgs_works *works, const struct vgs_works *others) {
  return keep(works, others, true, 0, NULL);
}

bool vgs_works_add_child(struct vgs_works *works, const struct vgs_works *others, uint32_t node,
                         struct vgs_works *old) {
  return keep(works, others, false, node, old);
}

void vgs_works_replace(struct vgs_works *works, uint32_t node, uint32_t other) {
  struct vgs_works old = {0};
  pthread_mutex_lock(&lock);
  take_out(works, node, &old); /* out of memory: the graph keeps them to its end */
  for (uint32_t i = 0; i < works->count; i++)
    if (works->items[i].node == other)
      works->items[i].node = node;
  pthread_mutex_unlock(&lock);
  vgs_works_clear(&old);
}

void vgs_works_clear(struct vgs_works *works) {
  for (uint32_t i = 0; i < works->count; i++)
    if (works->items[i].refs)
      unref(works->items[i].work, works->items[i].refs);
  free(works->items);
  *works = (struct vgs_works){0};
}
