/* The ring's index checks (vgx_ring.c) over stubs. Exits with 0 when all pass. */
#include "vgx_ring.c"

#include <stdio.h>

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%d: %s\n", __LINE__, #condition);                                                               \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

static bool violated, executed;
static struct vgx_session session;
static struct vgw_ring *shared;
static struct executor_thread thread;

CUresult vgx_violation(struct vgx_session *s, const char *what) {
  (void)s, (void)what;
  violated = true;
  return CUDA_ERROR_UNKNOWN;
}

void vgx_execute(struct executor_thread *t, const struct vgw_header *h, struct vgw_cursor *in,
                 const struct vgx_operation *op) {
  (void)t, (void)h, (void)op;
  executed = true;
  CHECK(in->cur <= in->end && (!in->more || in->more <= in->more_end));
}

static CUresult dispatch(struct vgx_session *s, const void *fixed, void *const *objects, struct vgw_cursor *in,
                         struct vgx_reply *out) {
  (void)s, (void)fixed, (void)objects, (void)in, (void)out;
  return CUDA_SUCCESS;
}

enum { PLAIN = 1, ON_SOCKET = 2, DATA = 3, NOTHING = 4 };
const struct vgx_operation vgx_operations[VGW_OP_COUNT] = {
    [PLAIN] = {.dispatch = dispatch},
    [ON_SOCKET] = {.dispatch = dispatch, .flags = VGX_NOT_IN_RING},
    [DATA] = {.dispatch = dispatch, .flags = VGX_DATA, .fixed_nbytes = 16},
};

int vgx_pop_fd(struct vgx_session *s) { return s ? -1 : 0; }
void vgx_notice(struct vgx_session *s, uint32_t bit, bool on) { (void)s, (void)bit, (void)on; }
void vgx_thread_end(struct executor_thread *t) { (void)t; }
void *vgx_region_map(struct vgx_session *s, void *address, uint64_t offset, uint64_t nbytes) {
  (void)s, (void)address, (void)offset, (void)nbytes;
  return MAP_FAILED;
}
bool vgx_thread_start(struct vgx_session *s, void *(*run)(void *), struct vgx_ring *ring,
                      void (*answered)(struct executor_thread *, const struct vgw_header *, const struct vgx_reply *)) {
  (void)s, (void)run, (void)ring, (void)answered;
  return false;
}

/* Whether the ring accepts a record with this header at `head`, with the tail `pushed` bytes later. */
static bool taken(uint64_t head, uint64_t pushed, uint32_t length, uint16_t opcode, uint16_t flags) {
  struct vgx_ring ring = {.shared = shared, .session = &session, .head = head, .tail = head + pushed};
  struct vgw_header header = {.length = length, .opcode = opcode, .flags = flags}, found;
  memcpy(shared->records + head % VGW_RING_NBYTES, &header, sizeof header);
  thread = (struct executor_thread){.s = &session, .ring = &ring, .record = thread.record};
  violated = executed = false;
  if (!next_header(&ring, &found)) {
    CHECK(violated);
    return false;
  }
  CHECK(found.length && found.length <= VGW_RING_NBYTES - head % VGW_RING_NBYTES && found.length <= pushed);
  bool padding = found.opcode == VGW_RING_PADDING;
  bool ran = padding || execute_record(&thread, &found);
  CHECK(ran ? padding != executed : violated);
  return ran;
}

/* Put a record beside the client's words, for the position `at`. */
static void put_short(uint64_t at, uint32_t length, uint16_t opcode) {
  struct vgw_header header = {.length = length, .opcode = opcode};
  memcpy(shared->short_record, &header, sizeof header);
  shared->short_at = at + 1;
}

int main(void) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  thread.record = mmap(NULL, VGW_RECORD_NBYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const uint64_t end = VGW_RING_NBYTES;

  CHECK(taken(0, 16, 16, PLAIN, 0) && taken(0, 64, 48, PLAIN, 0) && taken(end - 64, 64, 64, PLAIN, 0));
  CHECK(taken(0, VGW_RING_RECORD_NBYTES, VGW_RING_RECORD_NBYTES, PLAIN, 0) && taken(0, end, 16, PLAIN, 0));
  CHECK(taken(0, VGW_RING_RECORD_NBYTES, VGW_RING_RECORD_NBYTES, DATA, 0) && taken(0, 16, 16, DATA, 0));
  CHECK(taken(end - 4096, 4096, 4096, VGW_RING_PADDING, 0) && taken(end - 8, 24, 0, 0, 0));
  CHECK(taken(end - 3 * VGW_RING_RECORD_NBYTES, 3 * VGW_RING_RECORD_NBYTES, 3 * VGW_RING_RECORD_NBYTES, 0, 0));

  /* positions */
  const uint64_t pushed[] = {4, 12, 20, end + 8, 2 * end, 1ull << 32, 1ull << 63, (uint64_t)-8, (uint64_t)-16};
  for (size_t i = 0; i < sizeof pushed / sizeof *pushed; i++)
    CHECK(!taken(0, pushed[i], 16, PLAIN, 0));
  CHECK(!taken(end - 8, 0, 0, 0, 0)); /* nothing was pushed, so there is no padding */
  /* lengths */
  const uint32_t lengths[] = {
      0, 4, 8, 12, 20, 28, 128, VGW_RING_RECORD_NBYTES + 8, 1u << 31, UINT32_MAX, UINT32_MAX - 7};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
    CHECK(!taken(0, 64, lengths[i], PLAIN, 0));
  CHECK(!taken(0, end, VGW_RING_RECORD_NBYTES + 8, PLAIN, 0)); /* larger than a thread's copy buffer */
  CHECK(!taken(end - 64, 128, 72, PLAIN, 0));                  /* extends beyond the ring's end */
  CHECK(!taken(end - 64, 128, 72, VGW_RING_PADDING, 0));
  /* opcodes and flags that a ring must refuse */
  CHECK(!taken(0, 64, 64, ON_SOCKET, 0) && !taken(0, 64, 64, PLAIN, VGW_HAS_FD));
  CHECK(!taken(0, 64, 64, NOTHING, 0) && !taken(0, 64, 64, VGW_OP_COUNT + PLAIN, 0) && !taken(0, 64, 64, 0xffff, 0));
  /* a record beside the client's words: looked at only for its position, no longer than its place */
  put_short(64, 16, ON_SOCKET);
  CHECK(taken(0, 64, 16, PLAIN, 0) && !taken(64, 64, 16, PLAIN, 0));
  put_short(64, 40, PLAIN);
  CHECK(taken(64, 64, 16, ON_SOCKET, 0) && !taken(64, 32, 16, PLAIN, 0));
  put_short(64, 40, DATA);
  CHECK(taken(64, 64, 16, ON_SOCKET, 0));
  put_short(64, 48, PLAIN);
  CHECK(!taken(64, 64, 16, PLAIN, 0));
  return 0;
}
