/* card.c with time: a kernel of g blocks takes g us, on a card that all processes share and that executes what they
 * submit one after another. The card is the file CARD (-D) of one page, which must exist. Streams of a process count as
 * one. A launch with blocks of 32 n threads is counted in word n of the card, for tests that have several programs. */
#define cuInit untimed_cuInit
#define cuLaunchKernel untimed_cuLaunchKernel
#define cuStreamSynchronize untimed_cuStreamSynchronize
#define cuStreamQuery untimed_cuStreamQuery
#define cuCtxSynchronize untimed_cuCtxSynchronize
#define cuEventCreate untimed_cuEventCreate
#define cuEventDestroy_v2 untimed_cuEventDestroy_v2
#define cuEventRecordWithFlags untimed_cuEventRecordWithFlags
#define cuEventRecord untimed_cuEventRecord
#define cuEventSynchronize untimed_cuEventSynchronize
#define cuEventQuery untimed_cuEventQuery
#define cuStreamWaitEvent untimed_cuStreamWaitEvent
#define cuStreamWriteValue32_v2 untimed_cuStreamWriteValue32_v2
#define LAUNCH_NS 1
#include "card.c"
#undef cuInit
#undef cuLaunchKernel
#undef cuStreamSynchronize
#undef cuStreamQuery
#undef cuCtxSynchronize
#undef cuEventCreate
#undef cuEventDestroy_v2
#undef cuEventRecordWithFlags
#undef cuEventRecord
#undef cuEventSynchronize
#undef cuEventQuery
#undef cuStreamWaitEvent
#undef cuStreamWriteValue32_v2

#include <fcntl.h>

enum { NOT_READY = 600, NO_DEVICE = 100, WORDS = PAGE_NBYTES / 8 };

static _Atomic int64_t *card; /* word 0: when it has done all that was submitted */
static _Atomic int64_t done;  /* when this process's submissions have been executed */

struct timed_event {
  int64_t done;
};

int cuInit(unsigned flags) {
  int fd = open(CARD, O_RDWR);
  if (!card && fd >= 0)
    card = mmap(NULL, PAGE_NBYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return card ? untimed_cuInit(flags) : NO_DEVICE;
}

int cuCtxGetCurrent(void **current) { return *current = &context, 0; }
int cuCtxGetDevice(int *device) { return *device = 0; }
int cuStreamGetCaptureInfo_v2(struct stream *stream, int *status, uint64_t *id, void **graph, void **deps, size_t *n) {
  *status = stream && stream->capturing;
  if (id)
    *id = 1;
  if (graph)
    *graph = stream;
  if (deps)
    *deps = NULL;
  if (n)
    *n = 0;
  return 0;
}

int cuLaunchKernel(const struct kernel *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared_nbytes, struct stream *stream, void **params, void **extra) {
  int64_t takes = (int64_t)gx * 1000, now = now_ns(), free = atomic_load(card);
  int result = untimed_cuLaunchKernel(kernel, gx, gy, gz, bx, by, bz, shared_nbytes, stream, params, extra);
  if (stream && stream->capturing)
    return result;
  while (!atomic_compare_exchange_weak(card, &free, (free > now ? free : now) + takes))
    continue;
  atomic_store(&done, (free > now ? free : now) + takes);
  atomic_fetch_add(&card[bx / 32 % WORDS], 1);
  return result;
}

static int wait_until(int64_t end) {
  for (int64_t now; (now = now_ns()) < end;)
    nanosleep(&(struct timespec){(end - now) / 1000000000, (end - now) % 1000000000}, NULL);
  return 0;
}

int cuStreamSynchronize(struct stream *stream) { return untimed_cuStreamSynchronize(stream) | wait_until(done); }
int cuStreamQuery(struct stream *stream) { return now_ns() < done ? NOT_READY : untimed_cuStreamQuery(stream); }
int cuCtxSynchronize(void) { return wait_until(done); }
int cuEventCreate(struct timed_event **made, unsigned flags) {
  return *made = calloc(1, sizeof **made), *made && flags < 8 ? 0 : INVALID_VALUE;
}
int cuEventDestroy_v2(struct timed_event *of) { return free(of), 0; }
int cuEventRecordWithFlags(struct timed_event *of, struct stream *stream, unsigned flags) {
  return of->done = done, stream && flags > 1 ? INVALID_VALUE : 0;
}
int cuEventRecord(struct timed_event *of, struct stream *stream) { return cuEventRecordWithFlags(of, stream, 0); }
int cuEventSynchronize(struct timed_event *of) { return wait_until(of->done); }
int cuEventQuery(struct timed_event *of) { return now_ns() < of->done ? NOT_READY : 0; }
int cuStreamWaitEvent(struct stream *stream, struct timed_event *of, unsigned flags) {
  return stream && of && flags > 1 ? INVALID_VALUE : 0;
}
int cuStreamWriteValue32_v2(struct stream *stream, uint64_t address, unsigned value, unsigned flags) {
  wait_until(done);
  return untimed_cuStreamWriteValue32_v2(stream, address, value, flags);
}
