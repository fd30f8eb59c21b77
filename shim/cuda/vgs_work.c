#include "vgs_work.h"
#include "vgs_api.h"
#include "vgs_callback.h"
#include "vgs_capture.h"
#include "vgs_copy_box.h"
#include "vgs_log.h"
#include "vgs_session.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES_MAX = 1 << 24 };

struct vgs_work {
  uint32_t id, refs;
  CUhostFn function; /* the program's; NULL: a copy, or a user object */
  void *user_data;
  CUhostFn destroy;      /* of a user object: called with `user_data` when nothing refers to it any more */
  uint32_t program_refs; /* of `refs`, those that the program holds on a user object */
  struct vgs_captured_copy copy;
  struct vgs_work_memory *memory; /* between the two sides; NULL: both are here */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* By the low bits of an id. A place is used again when its work is gone: nothing can come due for that any more. */
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

static struct vgs_work *create(const struct vgs_work *wanted, uint32_t refs, uint32_t marks) {
  struct vgs_work *work = malloc(sizeof *work);
  if (!work)
    return NULL;
  *work = *wanted;
  work->refs = refs;
  pthread_mutex_lock(&lock);
  uint32_t place = take_place(work);
  work->id = place | VGW_CALLBACK_OF_GRAPH | marks;
  pthread_mutex_unlock(&lock);
  if (place)
    return work;
  free(work);
  return NULL;
}

struct vgs_work *vgs_work_function(CUhostFn function, void *user_data) {
  return create(&(struct vgs_work){.function = function, .user_data = user_data}, 1, 0);
}

uint32_t vgs_work_id(const struct vgs_work *work) { return work->id; }

struct vgs_work *vgs_work_user_object(CUhostFn destroy, void *user_data, uint32_t refs) {
  return create(&(struct vgs_work){.destroy = destroy, .user_data = user_data, .program_refs = refs}, refs, 0);
}

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
  if (work->memory)
    vgs_work_memory_give(work->memory);
  if (work->destroy)
    work->destroy(work->user_data);
  free(work);
}

void vgs_work_release(struct vgs_work *work) { unref(work, 1); }

/* The work of a callback, kept for the caller; NULL: none. */
static struct vgs_work *find(uint32_t callback) {
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

bool vgs_work_params(uint32_t callback, CUDA_HOST_NODE_PARAMS *params) {
  struct vgs_work *work = find(callback);
  bool is_program = work && work->function;
  if (is_program)
    *params = (CUDA_HOST_NODE_PARAMS){.fn = work->function, .userData = work->user_data};
  if (work)
    vgs_work_release(work);
  return is_program;
}

/* --- user objects --- */

struct vgs_work *vgs_work_find_user_object(uint32_t id) {
  struct vgs_work *work = find(id);
  if (!work || work->destroy)
    return work;
  vgs_work_release(work);
  return NULL;
}

bool vgs_work_add_program_refs(struct vgs_work *work, uint32_t refs) {
  uint32_t sum;
  pthread_mutex_lock(&lock);
  bool fits = !__builtin_add_overflow(work->refs, refs, &sum);
  if (fits) {
    work->refs = sum;
    work->program_refs += refs; /* at most `refs` */
  }
  pthread_mutex_unlock(&lock);
  return fits;
}

bool vgs_work_drop_program_refs(struct vgs_work *work, uint32_t refs) {
  pthread_mutex_lock(&lock);
  bool held = refs <= work->program_refs;
  if (held)
    work->program_refs -= refs;
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

/* There is room. */
static void append(struct vgs_works *works, struct vgs_kept kept) {
  works->items[works->count++] = kept;
  works->pageable += kept.work->copy.pageable;
}

/* Move what is kept for a node. Under `lock`. */
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
      works->pageable -= kept.work->copy.pageable;
    } else {
      works->items[left++] = kept;
    }
  }
  if (found)
    works->count = left;
  return true;
}

/* With `as_they_are` each stays with its own node. `others` may be `works` itself. */
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

bool vgs_works_keep(struct vgs_works *works, struct vgs_work *work, uint32_t node, struct vgs_works *old) {
  struct vgs_kept one = {work, node, 1};
  return keep(works, &(struct vgs_works){.items = &one, .count = 1}, false, node, old);
}

bool vgs_works_keep_user_object(struct vgs_works *works, struct vgs_work *work, uint32_t refs) {
  struct vgs_kept one = {work, 0, refs};
  return keep(works, &(struct vgs_works){.items = &one, .count = 1}, false, 0, NULL);
}

bool vgs_works_drop_user_object(struct vgs_works *works, struct vgs_work *work, uint32_t refs) {
  uint32_t held = 0, left = refs;
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < works->count && held < refs; i++)
    held += works->items[i].work == work ? works->items[i].refs : 0;
  for (uint32_t i = 0, count = held < refs ? 0 : works->count; i < count; i++) {
    struct vgs_kept *kept = &works->items[i];
    uint32_t part = kept->work != work ? 0 : kept->refs < left ? kept->refs : left;
    kept->refs -= part; /* an entry without references stays: it is little, and goes with the graph */
    left -= part;
  }
  pthread_mutex_unlock(&lock);
  if (held < refs)
    return false;
  unref(work, refs);
  return true;
}

bool vgs_works_keep_all(struct vgs_works *works, const struct vgs_works *others) {
  return keep(works, others, true, 0, NULL);
}

bool vgs_works_keep_child(struct vgs_works *works, const struct vgs_works *others, uint32_t node,
                          struct vgs_works *old) {
  return keep(works, others, false, node, old);
}

void vgs_works_clear(struct vgs_works *works) {
  for (uint32_t i = 0; i < works->count; i++)
    if (works->items[i].refs)
      unref(works->items[i].work, works->items[i].refs);
  free(works->items);
  *works = (struct vgs_works){0};
}

static void clear_retired(void *argument) {
  vgs_works_clear(argument);
  free(argument);
}

bool vgs_works_retire(struct vgs_works *works, CUstream stream, uint32_t context_id) {
  struct vgs_works *retired = malloc(sizeof *retired);
  if (retired)
    *retired = *works;
  *works = (struct vgs_works){0};
  bool asked = retired && vgs_thread_context_id == context_id && !vgs_callback_after(stream, clear_retired, retired);
  if (!asked)
    free(retired);
  return asked;
}

/* --- copies --- */

/* Bytes [offset, offset + nbytes) of what is copied, its rows packed one after the other, from or to one side. */
static void move_packed(const struct vgs_captured_copy *copy, const struct vgs_rows *side, uint64_t offset,
                        char *packed, uint64_t nbytes, bool to_side) {
  while (nbytes) {
    uint64_t row = offset / copy->width, x = offset % copy->width, part = copy->width - x;
    part = part < nbytes ? part : nbytes;
    char *at =
        (char *)(uintptr_t)(side->address + row / copy->height * side->slice + row % copy->height * side->pitch + x);
    if (to_side)
      memmove(at, packed, part);
    else
      memmove(packed, at, part);
    offset += part;
    packed += part;
    nbytes -= part;
  }
}

static void move_here(const struct vgs_captured_copy *copy) {
  for (uint64_t row = 0; row < copy->height * copy->depth; row++)
    move_packed(copy, &copy->dst, row * copy->width,
                (char *)(uintptr_t)(copy->src.address + row / copy->height * copy->src.slice +
                                    row % copy->height * copy->src.pitch),
                copy->width, true);
}

/* The memory between the sides is the worker's: its bytes travel in records. */
static CUresult move_in_records(const struct vgs_work *work, const struct vgs_rows *side, uint64_t total,
                                bool to_side) {
  CUresult result = CUDA_SUCCESS;
  char *packed = malloc(total < VGW_PIECE_NBYTES ? total : VGW_PIECE_NBYTES);
  if (!packed)
    return CUDA_ERROR_OUT_OF_MEMORY;
  for (uint64_t done = 0; done < total && !result;) {
    uint64_t nbytes = total - done < VGW_PIECE_NBYTES ? total - done : VGW_PIECE_NBYTES;
    if (to_side) {
      result = vgs_send_vgpuHostRead(work->memory->address + done, nbytes, packed);
      if (!result)
        move_packed(&work->copy, side, done, packed, nbytes, true);
    } else {
      move_packed(&work->copy, side, done, packed, nbytes, false);
      result = vgs_send_vgpuHostWrite(work->memory->address + done, nbytes, packed, false);
    }
    done += nbytes;
  }
  free(packed);
  return result;
}

static CUresult move(const struct vgs_work *work) {
  const struct vgs_captured_copy *copy = &work->copy;
  if (!work->memory) {
    move_here(copy);
    return CUDA_SUCCESS;
  }
  bool to_host = copy->src.place == VGS_PLACE_DEVICE;
  const struct vgs_rows *side = to_host ? &copy->dst : &copy->src;
  uint64_t total = copy->width * copy->height * copy->depth;
  if (!work->memory->shared)
    return move_in_records(work, side, total, to_host);
  move_packed(copy, side, 0, (char *)(uintptr_t)work->memory->address, total, to_host);
  return CUDA_SUCCESS;
}

void vgs_work_run(uint32_t callback) {
  struct vgs_work *work = find(callback);
  if (!work)
    return;
  CUresult result = CUDA_SUCCESS;
  if (work->function)
    work->function(work->user_data);
  else
    result = move(work);
  if (result)
    vgs_log(VGS_LOG_ERROR, "a graph's copy of pageable memory failed with %d", result);
  vgs_work_release(work);
}

/* The device's own part: between its side and the memory in the middle. */
static CUresult capture_device_half(const struct vgs_captured_copy *copy, uint64_t middle, bool to_host) {
  enum { TO_DEVICE = 1, TO_HOST = 2 };
  const struct vgs_rows *device = to_host ? &copy->src : &copy->dst;
  uint64_t dst = to_host ? middle : device->address, src = to_host ? device->address : middle;
  if (copy->height == 1 && copy->depth == 1)
    return vgs_send_vgpuMemcpyPinned(dst, src, copy->width, to_host ? TO_HOST : TO_DEVICE, copy->stream, true);
  CUresult result = CUDA_SUCCESS;
  for (uint64_t z = 0; z < copy->depth && !result; z++) {
    uint64_t packed = middle + z * copy->width * copy->height, slice = device->address + z * device->slice;
    result = to_host ? vgs_send_vgpuMemcpy2DOnDevice(packed, copy->width, slice, device->pitch, copy->width,
                                                     copy->height, copy->stream, true)
                     : vgs_send_vgpuMemcpy2DOnDevice(slice, device->pitch, packed, copy->width, copy->width,
                                                     copy->height, copy->stream, true);
  }
  return result;
}

/* The work of a copy; `middle` is the address of the memory between its sides, 0: none. */
static CUresult create_copy(const struct vgs_captured_copy *copy, uint32_t marks, struct vgs_work **work,
                            uint64_t *middle) {
  uint64_t total;
  if (__builtin_mul_overflow(copy->width, copy->height, &total) || __builtin_mul_overflow(total, copy->depth, &total))
    return CUDA_ERROR_INVALID_VALUE;
  struct vgs_work wanted = {.copy = *copy};
  CUresult result = vgs_callback_start();
  if (!result && (copy->dst.place == VGS_PLACE_DEVICE || copy->src.place == VGS_PLACE_DEVICE))
    result = vgs_work_memory_take(total, &wanted.memory);
  if (result)
    return result;
  *work = create(&wanted, 1, VGW_CALLBACK_INTERNAL | marks);
  *middle = wanted.memory ? wanted.memory->address : 0;
  if (*work)
    return CUDA_SUCCESS;
  if (wanted.memory)
    vgs_work_memory_give(wanted.memory);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vgs_work_capture_copy(const struct vgs_captured_copy *copy) {
  struct vgs_work *work;
  uint64_t middle;
  if (vgs_capture_status(copy->capture) == VGS_CAPTURE_INVALIDATED)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  CUresult result = create_copy(copy, 0, &work, &middle);
  if (result)
    return result;
  if (!vgs_capture_keep(copy->capture, work))
    result = CUDA_ERROR_OUT_OF_MEMORY;
  if (!result && copy->src.place == VGS_PLACE_DEVICE)
    result = capture_device_half(copy, middle, true);
  if (!result)
    result = vgs_send_vgpuHostCallback(work->id, copy->stream, true);
  if (!result && copy->dst.place == VGS_PLACE_DEVICE)
    result = capture_device_half(copy, middle, false);
  vgs_work_release(work);
  return result;
}

CUresult vgs_work_copy(const struct vgs_captured_copy *copy, struct vgs_work **work, struct vgs_copy_in_place *device) {
  uint64_t middle;
  CUresult result = create_copy(copy, VGW_CALLBACK_WHOLE_COPY, work, &middle);
  *device = (struct vgs_copy_in_place){0};
  if (result || !middle)
    return result;
  bool to_host = copy->src.place == VGS_PLACE_DEVICE;
  const struct vgs_rows *side = to_host ? &copy->src : &copy->dst;
  *device = (struct vgs_copy_in_place){.dst = middle,
                                       .dst_pitch = copy->width,
                                       .dst_rows = copy->height,
                                       .src = side->address,
                                       .src_pitch = side->pitch,
                                       .src_rows = side->slice / side->pitch,
                                       .width = copy->width,
                                       .height = copy->height,
                                       .depth = copy->depth};
  if (!to_host) {
    device->dst = side->address;
    device->dst_pitch = side->pitch;
    device->dst_rows = side->slice / side->pitch;
    device->src = middle;
    device->src_pitch = copy->width;
    device->src_rows = copy->height;
  }
  return CUDA_SUCCESS;
}
