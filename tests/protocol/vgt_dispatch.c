#define _GNU_SOURCE
#include "vgt_dispatch.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "vgx_execute.h"
#include "vgx_graph_condition.h"
#include "vgx_graph_owner.h"
#include "vgx_graph_part.h"
#include "vgx_graph_query.h"
#include "vgx_image.h"
#include "vgx_ipc.h"
#include "vgx_launch.h"
#include "vgx_memory.h"
#include "vgx_resource.h"
#include "vgx_sampled.h"
#include "vgx_session.h"

#define PAGE 4096

int vgt_mutant = -1, vgt_result;

void vgt_set_result(int result) { vgt_result = result; }

void vgt_set_mutant(int number) { vgt_mutant = number; }
extern struct vgx_backend vgt_backend;

static struct vgx_session session;
static struct executor_thread thread;
static uint8_t *record_end;
static char reached[256], violation[256];
static bool ended_with_tables; /* its thread held their lock */
static atomic_int reach_count;
static uint64_t objects = 0x1000;

/* The gate: a stub waits in a thread whose `stands_still` is set, until `may_leave`; other threads pass. */
static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate = PTHREAD_COND_INITIALIZER;
static _Thread_local bool stands_still;
static bool is_inside, may_leave, overtaken;

void vgt_reach(const char *name) {
  strncpy(reached, name, sizeof reached - 1);
  reach_count++;
  pthread_mutex_lock(&gate_lock);
  if (is_inside && !stands_still)
    overtaken = true;
  if (stands_still) {
    is_inside = true;
    pthread_cond_broadcast(&gate);
    while (!may_leave)
      pthread_cond_wait(&gate, &gate_lock);
    is_inside = false;
  }
  pthread_mutex_unlock(&gate_lock);
}

void *vgt_object(void) { return (void *)(uintptr_t)(objects += 16); }

void vgt_read(const void *data, uint64_t nbytes) {
  static volatile uint8_t sum;
  for (uint64_t i = 0; i < nbytes; i++)
    sum += ((const uint8_t *)data)[i];
}

/* --- stubs for the executor's other files --- */

bool vgx_reason_pending(void) { return false; }

CUresult vgx_not_offered(struct vgx_session *s, const char *name) {
  (void)s, (void)name;
  return CUDA_ERROR_NOT_SUPPORTED;
}

void vgx_reason(struct vgx_session *s, CUresult result, const char *format, ...) {
  (void)s, (void)result, (void)format;
}
enum { OUT_OF_REACH = 0xbad, WHOLE_COPY = 6, SPLIT = 7, INSIDE = 6 }; /* conditions.py */

bool vgx_is_pinned(struct vgx_session *s, uint64_t address, uint64_t nbytes) {
  (void)s, (void)nbytes;
  return address != OUT_OF_REACH;
}

bool vgx_is_reachable(struct vgx_session *s, uint64_t address, uint64_t nbytes) {
  return vgx_is_pinned(s, address, nbytes);
}

CUresult vgx_graph_range_reserve(struct vgx_session *s, uint64_t nbytes) {
  (void)s;
  return nbytes == OUT_OF_REACH ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

void vgx_graph_range_set(struct vgx_session *s, uint64_t address, uint64_t nbytes) {
  (void)s, (void)address, (void)nbytes;
}

bool vgx_box_is_reachable(struct vgx_session *s, uint64_t address, uint64_t pitch, uint64_t rows, uint64_t width,
                          uint64_t height, uint64_t depth) {
  (void)pitch, (void)rows, (void)width, (void)height, (void)depth;
  return vgx_is_pinned(s, address, 0);
}

bool vgx_rows_fill(uint64_t width, uint64_t height, uint64_t nbytes) {
  return width && height && width * height == nbytes;
}

bool vgx_move_pinned(struct vgx_session *s, uint64_t address, void *to, const void *from, uint64_t nbytes) {
  vgt_reach("vgx_move_pinned");
  (void)s, (void)address;
  if (to)
    memset(to, 7, nbytes);
  else
    vgt_read(from, nbytes);
  return true;
}

CUDA_HOST_NODE_PARAMS vgx_callback_of(struct vgx_session *s, uint32_t id) {
  (void)s, (void)id;
  return (CUDA_HOST_NODE_PARAMS){.fn = NULL};
}

bool vgx_graph_callback_of(struct vgx_session *s, CUgraphNode node, uint32_t *callback) {
  vgt_reach("vgx_graph_callback_of");
  (void)s, (void)node;
  *callback = 1;
  return true;
}

bool vgx_graph_is_whole_copy(struct vgx_session *s, CUgraphNode node) {
  return node && node == vgx_handle_live_locked(s, VGW_KIND_GRAPH_NODE, WHOLE_COPY);
}

CUresult vgx_graph_copy_params(struct vgx_session *s, CUgraphNode node, CUDA_MEMCPY3D *params, uint32_t *callback) {
  vgt_reach("vgx_graph_copy_params");
  (void)s, (void)node, (void)params;
  *callback = 1;
  return CUDA_SUCCESS;
}

uint32_t vgx_graph_place_of(struct vgx_session *s, CUgraph graph, CUgraphNode node) {
  (void)s, (void)graph, (void)node;
  return 0;
}

CUresult vgx_graph_set_halves(struct vgx_session *s, CUgraphNode node, uint32_t callback, const CUDA_MEMCPY3D *copy,
                              bool to_host) {
  vgt_reach("vgx_graph_set_halves");
  (void)s, (void)node, (void)callback, (void)copy, (void)to_host;
  return CUDA_SUCCESS;
}

bool vgx_graph_may_move(struct vgx_session *s, uint32_t graph, uint32_t parent) {
  (void)s, (void)graph;
  return parent != INSIDE;
}

CUresult vgx_graph_move_child(struct vgx_session *s, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              CUgraph child, CUgraphNode *node) {
  vgt_reach("vgx_graph_move_child");
  (void)s, (void)graph, (void)child;
  vgt_read(dependencies, count * sizeof *dependencies);
  *node = vgt_object();
  return CUDA_SUCCESS;
}

void vgx_graph_moved(struct vgx_session *s, uint32_t graph, uint32_t node) { (void)s, (void)graph, (void)node; }

CUresult vgx_graph_swap_nodes(struct vgx_session *s, uint32_t node, uint32_t other) {
  vgt_reach("vgx_graph_swap_nodes");
  (void)s, (void)node, (void)other;
  return CUDA_SUCCESS;
}

CUresult vgx_capture_child(struct vgx_session *s, CUstream stream, CUgraph graph, CUgraph child) {
  vgt_reach("vgx_capture_child");
  (void)s, (void)stream, (void)graph, (void)child;
  return CUDA_SUCCESS;
}

CUresult vgx_capture_dependencies(struct vgx_session *s, CUstream stream, CUgraph graph, CUgraphNode *nodes,
                                  CUgraphEdgeData *edges, size_t *count) {
  vgt_reach("vgx_capture_dependencies");
  (void)s, (void)stream, (void)graph, (void)nodes, (void)edges;
  *count = 0;
  return CUDA_SUCCESS;
}

int vgx_graph_type_of(struct vgx_session *s, CUgraphNode node, int type) {
  (void)s, (void)node;
  return type;
}

/* Every condition belongs to the graph, except the value OUT_OF_REACH. */
CUresult vgx_condition_add(struct vgx_session *s, uint32_t graph, uint64_t value) {
  (void)s, (void)graph, (void)value;
  return CUDA_SUCCESS;
}

bool vgx_condition_is_of(struct vgx_session *s, uint32_t graph, uint64_t value) {
  (void)s, (void)graph;
  return value != OUT_OF_REACH;
}

CUresult vgx_resources_add(struct vgx_session *s, const CUdevResource *resources, uint64_t count) {
  (void)s, (void)resources, (void)count;
  return CUDA_SUCCESS;
}

CUresult vgx_resources_add_split(struct vgx_session *s, const CUdevResource *groups, uint64_t count,
                                 const CUdevResource *remaining) {
  (void)s, (void)groups, (void)count, (void)remaining;
  return CUDA_SUCCESS;
}

/* Only resources of type 0 are known (conditions.py). */
bool vgx_resources_are_known(struct vgx_session *s, const CUdevResource *resources, uint64_t count) {
  bool known = true;
  (void)s;
  for (uint64_t i = 0; i < count; i++)
    known &= resources[i].type == 0;
  return known;
}

size_t vgx_node_access(const CUDA_MEM_ALLOC_NODE_PARAMS *params, CUmemAccessDesc *descs, uint64_t capacity) {
  (void)params;
  memset(descs, 7, capacity * sizeof *descs);
  return capacity;
}

uint32_t vgx_node_words(struct vgx_session *s, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params,
                        CUstreamBatchMemOpParams *words, uint64_t capacity, uint32_t *context) {
  (void)s, (void)params, (void)context;
  memset(words, 7, capacity * sizeof *words);
  return (uint32_t)capacity;
}

CUresult vgx_image_load_begin(struct vgx_session *s, uint32_t id, struct vgx_image *taken) {
  (void)s;
  *taken = (struct vgx_image){.data = (uint8_t *)"image", .total = 5};
  return id == OUT_OF_REACH ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

void vgx_image_load_end(struct vgx_session *s, const struct vgx_image *taken) { (void)s, (void)taken; }

void vgx_image_charge(struct vgx_session *s, const struct vgx_image *taken, enum vgw_kind kind, uint32_t id) {
  (void)s, (void)taken, (void)kind, (void)id;
}

CUresult vgx_device_enter(struct vgx_session *s, int32_t device) {
  (void)s;
  return device == OUT_OF_REACH ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult vgx_resource_of(struct vgx_session *s, CUDA_RESOURCE_DESC *resource, uint32_t id) {
  (void)s, (void)resource;
  return id == OUT_OF_REACH ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult vgx_sampled_add(struct vgx_session *s, uint64_t value, bool surface) {
  (void)s, (void)value, (void)surface;
  return CUDA_SUCCESS;
}

bool vgx_sampled_remove(struct vgx_session *s, uint64_t value, bool surface) {
  (void)s, (void)surface;
  return value != OUT_OF_REACH;
}

void vgx_ipc_freed(struct vgx_session *s, uint64_t address) { (void)s, (void)address; }
void vgx_ipc_context_destroyed(struct vgx_session *s) { (void)s; }
void vgx_share_released(struct vgx_session *s, enum vgx_ipc_what what, uint32_t id) { (void)s, (void)what, (void)id; }

int vgt_no_memory; /* for tables: calloc fails (linked in by -Wl,--wrap) */

void *__real_calloc(size_t count, size_t nbytes);
void *__wrap_calloc(size_t count, size_t nbytes);
void *__wrap_calloc(size_t count, size_t nbytes) { return vgt_no_memory ? NULL : __real_calloc(count, nbytes); }

/* --- what the test calls --- */

/* Map `nbytes` bytes, then an inaccessible page; return the end of the bytes. */
static uint8_t *map_before_guard(size_t nbytes) {
  uint8_t *at = mmap(NULL, nbytes + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(at + nbytes, PAGE, PROT_NONE);
  return at + nbytes;
}

static void answer(struct executor_thread *t, const struct vgw_header *reply, const struct vgx_reply *out) {
  (void)t, (void)reply, (void)out;
}

static struct vgx_serve_options options = {.backend = &vgt_backend};

/* Deny the session all groups of functions, or none. */
void vgt_deny_all(int denied) { options.denied = denied ? UINT32_MAX : 0; }

/* The session ends: vgx_end takes locks that are held while others take the tables' (vgx_ahead.c). */
static void end_waits(bool over) {
  if (over)
    ended_with_tables = pthread_mutex_trylock(&session.table_lock) != 0;
  if (over && !ended_with_tables)
    pthread_mutex_unlock(&session.table_lock);
}

void vgt_begin(void) {
  memset(&session, 0, sizeof session);
  vgt_backend.end_waits = end_waits;
  session.backend = &vgt_backend;
  session.options = &options;
  session.fd = -1;
  pthread_mutex_init(&session.alone_lock, NULL);
  pthread_mutex_init(&session.table_lock, NULL);
  thread = (struct executor_thread){.s = &session, .answer = answer};
  thread.output = map_before_guard(VGW_RECORD_NBYTES) - VGW_RECORD_NBYTES;
  session.threads = &thread;
  record_end = map_before_guard(VGW_RECORD_NBYTES);
}

static void *first[VGW_KIND_COUNT];

void *vgt_first(int kind) { return first[kind]; }

/* Make an object with this id; `gone`: a destroyed object. Graph 1 owns all nodes. */
int vgt_make(int kind, uint32_t id, int gone) {
  static const struct vgx_operation none;
  void *context;
  if (vgx_record_ref(&thread, &none, 0, NULL, &context, NULL) != CUDA_SUCCESS)
    return 0;
  vgx_record_unref(&thread);
  bool made = vgx_handle_reserve(&session, (enum vgw_kind)kind, id) == VGX_RESERVED;
  void *object = vgt_object();
  if (id == 1)
    first[kind] = object;
  if (kind == VGW_KIND_GRAPH_NODE && id == SPLIT)
    vgx_handle_set_split(&session, VGW_KIND_GRAPH_NODE, id);
  vgx_handle_set(&session, (enum vgw_kind)kind, id, gone ? NULL : object, VGW_KIND_GRAPH, kind == VGW_KIND_GRAPH_NODE);
  return made;
}

/* Make an object that has an owner, such as a kernel of a module. */
int vgt_make_owned(int kind, uint32_t id, int owner_kind, uint32_t owner_id) {
  bool made = vgx_handle_reserve(&session, (enum vgw_kind)kind, id) == VGX_RESERVED;
  vgx_handle_set(&session, (enum vgw_kind)kind, id, vgt_object(), (enum vgw_kind)owner_kind, owner_id);
  return made;
}

/* Whether an id has an object. */
int vgt_is_live(int kind, uint32_t id) {
  void *object;
  bool live = vgx_handle(&session, (enum vgw_kind)kind, id, &object) == CUDA_SUCCESS && object;
  vgx_record_unref(&thread);
  return live;
}

/* Have `count` descriptors wait for the next record; executing a record closes those that came with it. */
void vgt_descriptors(int count) {
  while (session.fd_count)
    close(session.fds[--session.fd_count]);
  for (int i = 0; i < count; i++)
    session.fds[session.fd_count++] = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Execute a record; return its result, or -1 for a violation, -2 if the lock of the tables was held at it. */
int vgt_execute(const uint8_t *record, uint32_t nbytes) {
  uint8_t *at = record_end - nbytes;
  memcpy(at, record, nbytes);
  struct vgw_header header;
  memcpy(&header, at, sizeof header);
  struct vgw_cursor in = {.cur = at + sizeof header, .end = record_end};
  reached[0] = violation[0] = 0;
  reach_count = 0;
  atomic_store(&session.deferred, CUDA_SUCCESS);
  header.flags = 0; /* no reply: an error stays in session.deferred */
  vgx_execute(&thread, &header, &in, &vgx_operations[header.opcode]);
  if (atomic_load(&session.ended)) {
    strncpy(violation, session.reason_text, sizeof violation - 1);
    atomic_store(&session.ended, false);
    atomic_store(&session.ending, false);
    vgx_record_unref(&thread);
    return ended_with_tables ? -2 : -1;
  }
  return atomic_load(&session.deferred);
}

/* --- two rings --- */

struct runner {
  struct executor_thread thread;
  const uint8_t *record;
  bool stands_still;
  _Atomic pid_t id;
};

static void *execute(void *argument) {
  struct runner *r = argument;
  struct vgw_header header;
  stands_still = r->stands_still;
  atomic_store(&r->id, gettid());
  memcpy(&header, r->record, sizeof header);
  struct vgw_cursor in = {.cur = r->record + sizeof header, .end = r->record + header.length};
  header.flags = 0;
  vgx_execute(&r->thread, &header, &in, &vgx_operations[header.opcode]);
  return NULL;
}

/* Whether the thread has begun and now sleeps (it waits for a lock or a condition) or has ended. */
static bool is_asleep(pid_t id) {
  char path[64], state = 0;
  if (!id)
    return false;
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", id);
  FILE *file = fopen(path, "r");
  if (!file)
    return true;
  bool read = fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
  fclose(file);
  return read && state == 'S';
}

/* Execute `user`, whose stub waits at the gate, and meanwhile in another ring `destroyer`, which names the same object
 * (kind, id). Returns 0 if the destroyer's stub was called after the user's returned, 1 if before, else an error. */
int vgt_overlap(const uint8_t *user, const uint8_t *destroyer, int kind, uint32_t id) {
  enum { NAP_NS = 1000000, NAPS = 5 };
  static uint8_t outputs[2][VGW_RECORD_NBYTES];
  struct runner runners[2] = {{.record = user, .stands_still = true}, {.record = destroyer}};
  pthread_t threads[2];
  struct executor_thread *before = session.threads;
  is_inside = may_leave = overtaken = false;
  atomic_store(&session.deferred, CUDA_SUCCESS);
  for (int i = 0; i < 2; i++) {
    runners[i].thread = (struct executor_thread){
        .s = &session, .answer = answer, .output = outputs[i], .next = i ? &runners[0].thread : before};
    session.threads = &runners[i].thread;
  }
  pthread_create(&threads[0], NULL, execute, &runners[0]);
  pthread_mutex_lock(&gate_lock);
  while (!is_inside)
    pthread_cond_wait(&gate, &gate_lock);
  pthread_mutex_unlock(&gate_lock);
  pthread_create(&threads[1], NULL, execute, &runners[1]);
  struct vgw_header headers[2];
  memcpy(&headers[0], user, sizeof headers[0]);
  memcpy(&headers[1], destroyer, sizeof headers[1]);
  bool turns = vgx_operations[headers[0].opcode].flags & vgx_operations[headers[1].opcode].flags & VGX_ALONE;
  while (!turns && vgt_is_live(kind, id)) /* until the destroyer has begun; if they take turns, it does not yet */
    nanosleep(&(struct timespec){0, NAP_NS}, NULL);
  for (int asleep = 0; asleep < NAPS && !overtaken; asleep = is_asleep(atomic_load(&runners[1].id)) ? asleep + 1 : 0)
    nanosleep(&(struct timespec){0, NAP_NS}, NULL);
  int found = overtaken;
  pthread_mutex_lock(&gate_lock);
  may_leave = true;
  pthread_cond_broadcast(&gate);
  pthread_mutex_unlock(&gate_lock);
  pthread_join(threads[0], NULL);
  pthread_join(threads[1], NULL);
  session.threads = before;
  if (!found && (atomic_load(&session.ended) || atomic_load(&session.deferred)))
    return 100 + atomic_load(&session.deferred);
  return found;
}

const char *vgt_reached(void) { return reached; }
const char *vgt_violation(void) { return violation; }

/* Change an entry of the table of operations to a wrong one; 0: the change would have no effect. */
int vgt_damage(uint32_t opcode, const char *how, uint32_t index) {
  struct vgx_operation *op = &vgx_operations[opcode];
  struct vgx_ref *ref = &op->handles[index];
  if (!strcmp(how, "fixed length") && op->fixed_nbytes) {
    op->fixed_nbytes -= 8;
    return 1;
  }
  if (!strcmp(how, "context") && op->flags & VGX_NEEDS_CONTEXT) {
    op->flags &= ~(uint32_t)VGX_NEEDS_CONTEXT;
    return 1;
  }
  if (index >= op->handle_count)
    return 0;
  if (!strcmp(how, "handle type") && ref->kind < VGW_KIND_COUNT) {
    ref->kind = ref->kind % (VGW_KIND_COUNT - 1) + 1;
    return 1;
  }
  if (!strcmp(how, "null handle")) {
    ref->null_result = ref->null_result ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    return 1;
  }
  if (!strcmp(how, "handle") && index + 1 == op->handle_count) {
    op->handle_count--;
    return 1;
  }
  return 0;
}
