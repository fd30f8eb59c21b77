/* Words of memory that streams wait for and write. A write to such a word gives no signal, so a wait polls it, on one
 * of the queue's threads, until the session ends. Locking: none of its own; the queue orders the work. */
#include "vgx_sim_word.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "vgx_sim_fault.h"
#include "vgx_sim_memory.h"
#include "vgx_sim_queue.h"
#include "vgx_sim_runtime.h"

enum { POLL_NS = 20000, WAIT_FLAGS = 3, WRITE_FLAGS = 1 /* CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER */ };

struct word_op {
  struct vgx_sim_op op;
  uint32_t count;
  CUstreamBatchMemOpParams params[];
};

/* One execution of an operation: it can run several times at once. */
struct words_run {
  const struct word_op *op;
  bool ended; /* by the session's end */
};

static atomic_bool is_over;

void vgx_sim_words_end(bool over) { atomic_store(&is_over, over); }

static bool is_wide(uint32_t operation) {
  return operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

static bool is_there(const CUstreamBatchMemOpParams *p) {
  bool wide = is_wide(p->operation);
  uint64_t now = wide ? atomic_load((_Atomic uint64_t *)p->value.address)
                      : (uint64_t)atomic_load((_Atomic uint32_t *)p->value.address);
  uint64_t asked = wide ? p->value.value : (uint32_t)p->value.value;
  switch (p->value.flags & WAIT_FLAGS) {
  case CU_STREAM_WAIT_VALUE_GEQ:
    return wide ? (int64_t)(now - asked) >= 0 : (int32_t)(uint32_t)(now - asked) >= 0;
  case CU_STREAM_WAIT_VALUE_EQ:
    return now == asked;
  case CU_STREAM_WAIT_VALUE_AND:
    return now & asked;
  default:
    return wide ? ~(now | asked) : (uint32_t)~(now | asked);
  }
}

/* False: the session has ended first. */
static bool wait_for(const CUstreamBatchMemOpParams *p) {
  bool there = is_there(p);
  if (there)
    return true;
  vgx_sim_word_wait_begin();
  while (!(there = is_there(p)) && !atomic_load(&is_over))
    nanosleep(&(struct timespec){0, POLL_NS}, NULL);
  vgx_sim_word_wait_end();
  return there;
}

static void run_words(void *argument) {
  struct words_run *run = argument;
  const struct word_op *op = run->op;
  for (uint32_t i = 0; i < op->count && !run->ended; i++) {
    const CUstreamBatchMemOpParams *p = &op->params[i];
    switch (p->operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      atomic_store((_Atomic uint32_t *)p->value.address, (uint32_t)p->value.value);
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      atomic_store((_Atomic uint64_t *)p->value.address, p->value.value);
      break;
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      run->ended = !wait_for(p);
      break;
    default: /* all writes are visible already */
      atomic_thread_fence(memory_order_seq_cst);
    }
  }
}

static CUresult run(struct vgx_sim_op *op) {
  struct vgx_sim_fault fault;
  struct words_run own = {.op = (const struct word_op *)op};
  CUresult result = vgx_sim_guarded(NULL, run_words, &own, &fault);
  if (result == CUDA_SUCCESS)
    return own.ended ? CUDA_ERROR_CONTEXT_IS_DESTROYED : result; /* so that what follows in the stream is not run */
  vgx_sim_reason(CUDA_ERROR_ILLEGAL_ADDRESS, false, "an operation on a word faulted at 0x%llx",
                 (unsigned long long)fault.address);
  return CUDA_ERROR_ILLEGAL_ADDRESS;
}

static void destroy(struct vgx_sim_op *op) { free(op); }

static CUresult check(const CUstreamBatchMemOpParams *p) {
  uint64_t nbytes = is_wide(p->operation) ? 8 : 4;
  uint32_t flags = 0;
  switch (p->operation) {
  case CU_STREAM_MEM_OP_WAIT_VALUE_32:
  case CU_STREAM_MEM_OP_WAIT_VALUE_64:
    flags = WAIT_FLAGS;
    break;
  case CU_STREAM_MEM_OP_WRITE_VALUE_32:
  case CU_STREAM_MEM_OP_WRITE_VALUE_64:
    flags = WRITE_FLAGS;
    break;
  case CU_STREAM_MEM_OP_BARRIER:
    return CUDA_SUCCESS;
  case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: /* CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES is 0 */
    return CUDA_ERROR_NOT_SUPPORTED;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (p->value.flags & CU_STREAM_WAIT_VALUE_FLUSH)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (p->value.flags & ~flags || p->value.address % nbytes ||
      (!vgx_sim_is_device_range(p->value.address, nbytes) && !vgx_sim_is_registered(p->value.address, nbytes)))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_words_create(const CUstreamBatchMemOpParams *params, uint32_t count, struct vgx_sim_op **made) {
  CUresult result = CUDA_SUCCESS;
  for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++)
    result = check(&params[i]);
  if (result != CUDA_SUCCESS)
    return result;
  struct word_op *op = malloc(sizeof *op + count * sizeof *params);
  if (!op)
    return CUDA_ERROR_OUT_OF_MEMORY;
  op->op = (struct vgx_sim_op){.run = run, .destroy = destroy, .kind = VGX_SIM_OP_WORDS};
  op->count = count;
  memcpy(op->params, params, count * sizeof *params);
  *made = &op->op;
  return CUDA_SUCCESS;
}

uint32_t vgx_sim_words_of(struct vgx_sim_op *op, CUstreamBatchMemOpParams **params) {
  *params = ((struct word_op *)op)->params;
  return ((struct word_op *)op)->count;
}

static CUresult submit(CUstream handle, const CUstreamBatchMemOpParams *params, uint32_t count) {
  CUstream stream;
  struct vgx_sim_op *op;
  CUresult result = vgx_sim_enter_stream(handle, NULL, &stream);
  if (result == CUDA_SUCCESS)
    result = vgx_sim_words_create(params, count, &op);
  return result == CUDA_SUCCESS ? vgx_sim_submit(stream, op, VGX_SIM_QUEUE) : result;
}

static CUresult one(CUstream stream, uint32_t operation, CUdeviceptr address, uint64_t value, uint32_t flags) {
  CUstreamBatchMemOpParams params = {
      .value = {.operation = operation, .address = address, .value = value, .flags = flags}};
  return submit(stream, &params, 1);
}

CUresult vgx_sim_cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, unsigned int value, unsigned int flags) {
  return one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, addr, value, flags);
}

CUresult vgx_sim_cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, unsigned int value, unsigned int flags) {
  return one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, addr, value, flags);
}

CUresult vgx_sim_cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, uint64_t value, unsigned int flags) {
  return one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, addr, value, flags);
}

CUresult vgx_sim_cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, uint64_t value, unsigned int flags) {
  return one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, addr, value, flags);
}

CUresult vgx_sim_cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, const CUstreamBatchMemOpParams *paramArray,
                                       unsigned int flags) {
  return flags || !count || !paramArray ? CUDA_ERROR_INVALID_VALUE : submit(stream, paramArray, count);
}
