/* `vgt_races SCENARIO ROUNDS`: a program whose threads use the driver API, with its host in the same process. Built
 * with -fsanitize=thread, it finds data races on both sides of a ring. It checks the results of calls as well.
 */
#include "vgt_host.h"
#include "vgw_cuda.h"
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

CUresult cuInit(unsigned);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuCtxSynchronize(void);
CUresult cuModuleLoadData(CUmodule *, const void *);
CUresult cuModuleGetFunction(CUfunction *, CUmodule, const char *);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                        void **, void **);
CUresult cuLaunchHostFunc(CUstream, CUhostFn, void *);
CUresult cuStreamCreate(CUstream *, unsigned);
CUresult cuStreamDestroy_v2(CUstream);
CUresult cuStreamSynchronize(CUstream);
CUresult cuStreamQuery(CUstream);
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned);
CUresult cuEventCreate(CUevent *, unsigned);
CUresult cuEventDestroy_v2(CUevent);
CUresult cuEventRecord(CUevent, CUstream);
CUresult cuEventQuery(CUevent);
CUresult cuEventSynchronize(CUevent);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemAllocAsync(CUdeviceptr *, size_t, CUstream);
CUresult cuMemFreeAsync(CUdeviceptr, CUstream);
CUresult cuMemAllocHost_v2(void **, size_t);
CUresult cuMemFreeHost(void *);
CUresult cuMemsetD32Async(CUdeviceptr, unsigned, size_t, CUstream);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void *, size_t);
CUresult cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t, CUstream);
CUresult cuMemcpyDtoHAsync_v2(void *, CUdeviceptr, size_t, CUstream);
CUresult cuGraphCreate(CUgraph *, unsigned);
CUresult cuGraphDestroy(CUgraph);
CUresult cuGraphAddMemsetNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_MEMSET_NODE_PARAMS *,
                              CUcontext);
CUresult cuGraphMemsetNodeGetParams(CUgraphNode, CUDA_MEMSET_NODE_PARAMS *);
CUresult cuGraphMemsetNodeSetParams(CUgraphNode, const CUDA_MEMSET_NODE_PARAMS *);
CUresult cuGraphClone(CUgraph *, CUgraph);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long);
CUresult cuGraphExecDestroy(CUgraphExec);

enum { THREADS = 4, WORDS = 64, LARGE_NBYTES = (3 << 20) + 12, PIECE_NBYTES = 60 << 10, PIECES = 200, TIMEOUT_S = 300 };

static CUcontext context;
static CUfunction fill;
static int rounds;

#define OK(call) check(call, #call, __LINE__)

static void check(CUresult result, const char *call, int line) {
  if (result) {
    fprintf(stderr, "line %d: %s: %d\n", line, call, result);
    _exit(3);
  }
}

static void expect(bool true_now, const char *what, int line) {
  if (!true_now) {
    fprintf(stderr, "line %d: %s\n", line, what);
    _exit(4);
  }
}
#define EXPECT(condition) expect(condition, #condition, __LINE__)

static CUresult launch_fill(CUdeviceptr to, uint64_t value, CUstream stream) {
  void *params[] = {&to, &value};
  return cuLaunchKernel(fill, WORDS, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static void begin(void) {
  CUmodule module;
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  OK(cuModuleLoadData(&module, "vgt kernels"));
  OK(cuModuleGetFunction(&fill, module, "fill"));
}

static void run_threads(void *(*body)(void *)) {
  pthread_t threads[THREADS];
  for (intptr_t i = 0; i < THREADS; i++)
    EXPECT(!pthread_create(&threads[i], NULL, body, (void *)i));
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
}

/* --- work: threads that use streams of their own and a common one, ordered by events --- */

static CUstream common;
static CUevent handed[THREADS]; /* recorded by a thread, waited for by the next one */
static CUdeviceptr shared_words;
static uint32_t called_back; /* atomic */

static void count(void *unused) {
  (void)unused;
  __atomic_add_fetch(&called_back, 1, __ATOMIC_RELAXED);
}

static void small_copies(CUdeviceptr words, uint64_t value, CUstream stream, uint64_t *pinned) {
  uint64_t back[WORDS];
  OK(launch_fill(words, value, stream));
  OK(cuMemcpyDtoHAsync_v2(pinned, words, sizeof back, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT(pinned[0] == value && pinned[WORDS - 1] == value + WORDS - 1);
  OK(launch_fill(words, value + 1, stream));
  OK(cuMemcpyDtoHAsync_v2(back, words, sizeof back, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT(back[0] == value + 1 && back[WORDS - 1] == value + WORDS);
  OK(cuMemcpyDtoH_v2(back, words, sizeof back));
  EXPECT(back[1] == value + 2);
}

/* Copies long enough for staging, helper threads and more pieces than there are slots. */
static void large_copies(char *memory, int seed) {
  CUdeviceptr large;
  OK(cuMemAlloc_v2(&large, LARGE_NBYTES));
  memset(memory, seed, LARGE_NBYTES);
  OK(cuMemcpyHtoD_v2(large, memory, LARGE_NBYTES));
  memset(memory, 0, LARGE_NBYTES); /* the program may write it once the call has returned */
  OK(cuMemcpyDtoH_v2(memory, large, LARGE_NBYTES));
  EXPECT(memory[0] == (char)seed && memory[LARGE_NBYTES - 1] == (char)seed &&
         !memcmp(memory, memory + 1, LARGE_NBYTES - 1));
  OK(cuMemFree_v2(large));
}

static void *work(void *argument) {
  int number = (int)(intptr_t)argument;
  CUstream stream;
  CUdeviceptr words;
  uint64_t *pinned;
  char *memory = malloc(LARGE_NBYTES);
  OK(cuCtxSetCurrent(context));
  OK(cuStreamCreate(&stream, number & 1));
  OK(cuMemAlloc_v2(&words, WORDS * sizeof(uint64_t)));
  OK(cuMemAllocHost_v2((void **)&pinned, WORDS * sizeof(uint64_t)));
  for (int i = 0; i < rounds; i++) {
    small_copies(words, (uint64_t)i * 1000, stream, pinned);
    OK(launch_fill(shared_words, 7, common));
    OK(cuEventRecord(handed[number], common));
    OK(cuStreamWaitEvent(stream, handed[(number + 1) % THREADS], 0));
    OK(cuMemsetD32Async(words, 5, 2, stream));
    CUresult asked = cuEventQuery(handed[number]);
    EXPECT(asked == CUDA_SUCCESS || asked == CUDA_ERROR_NOT_READY);
    asked = cuStreamQuery(common);
    EXPECT(asked == CUDA_SUCCESS || asked == CUDA_ERROR_NOT_READY);
    OK(cuEventSynchronize(handed[number]));
    CUdeviceptr passing;
    OK(cuMemAllocAsync(&passing, 4096, stream));
    OK(launch_fill(passing, 1, stream));
    OK(cuMemFreeAsync(passing, stream));
    if (i % 4 == number)
      OK(cuCtxSynchronize());
    if (i % 4 == 1) {
      OK(cuLaunchHostFunc(stream, count, NULL));
      OK(cuLaunchHostFunc(common, count, NULL));
    }
    if (i % 8 == 3)
      large_copies(memory, i + number);
  }
  OK(cuStreamSynchronize(stream));
  OK(cuStreamSynchronize(common));
  OK(cuMemFreeHost(pinned));
  OK(cuMemFree_v2(words));
  OK(cuStreamDestroy_v2(stream));
  free(memory);
  return NULL;
}

static void make_common(void) {
  OK(cuStreamCreate(&common, 1));
  OK(cuMemAlloc_v2(&shared_words, WORDS * sizeof(uint64_t)));
  for (int i = 0; i < THREADS; i++)
    OK(cuEventCreate(&handed[i], 2));
}

static void scenario_work(void) {
  make_common();
  called_back = 0;
  run_threads(work);
  uint32_t expected = 0;
  for (int i = 0; i < rounds; i++)
    expected += i % 4 == 1 ? 2 * THREADS : 0;
  EXPECT(__atomic_load_n(&called_back, __ATOMIC_RELAXED) == expected);
}

/* --- full: rings that the worker empties more slowly than they are filled --- */

static void *push_pieces(void *argument) {
  CUstream stream;
  CUdeviceptr piece;
  char *memory = malloc(PIECE_NBYTES), *back = malloc(PIECE_NBYTES);
  OK(cuCtxSetCurrent(context));
  OK(cuStreamCreate(&stream, 1));
  OK(cuMemAlloc_v2(&piece, PIECE_NBYTES));
  for (int i = 0; i < PIECES; i++) {
    memset(memory, i + (int)(intptr_t)argument, PIECE_NBYTES); /* earlier records hold copies of the bytes */
    OK(cuMemcpyHtoDAsync_v2(piece, memory, PIECE_NBYTES, stream));
  }
  OK(cuMemcpyDtoHAsync_v2(back, piece, PIECE_NBYTES, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT(!memcmp(memory, back, PIECE_NBYTES));
  OK(cuStreamDestroy_v2(stream));
  free(memory);
  free(back);
  return NULL;
}

static void scenario_full(void) {
  vgt_host_slow_down(true);
  for (int i = 0; i < rounds; i++)
    run_threads(push_pieces);
  vgt_host_slow_down(false);
}

/* --- threads: threads start and end, and new ones use the rings of those that have ended --- */

static void *short_life(void *argument) {
  CUdeviceptr words;
  uint64_t back[WORDS];
  OK(cuCtxSetCurrent(context));
  OK(cuMemAlloc_v2(&words, sizeof back));
  OK(launch_fill(words, (uintptr_t)argument, NULL));
  OK(cuMemcpyDtoH_v2(back, words, sizeof back));
  EXPECT(back[3] == (uintptr_t)argument + 3);
  OK(cuMemFree_v2(words));
  return NULL;
}

static void scenario_threads(void) {
  for (int i = 0; i < 4 * rounds; i++)
    run_threads(short_life);
}

/* --- death: the worker dies while threads are inside every kind of call; then a new session begins --- */

static int working; /* atomic; threads that have begun their calls */
static int lost;    /* atomic; threads whose calls fail */
static int renewed; /* atomic; 1: the new session exists */

static CUresult one_of_each(CUstream stream, CUdeviceptr words, char *memory, int i) {
  uint64_t back[WORDS];
  CUresult result = launch_fill(words, 1, stream);
  if (!result)
    result = i % 2 ? cuStreamSynchronize(stream) : cuCtxSynchronize();
  if (!result)
    result = cuLaunchHostFunc(stream, count, NULL);
  if (!result)
    result = cuMemcpyDtoH_v2(back, words, sizeof back);
  if (!result && i % 4 == 0)
    result = cuMemcpyDtoH_v2(memory, words, LARGE_NBYTES);
  if (!result && i % 4 == 2)
    result = cuMemcpyHtoD_v2(words, memory, LARGE_NBYTES);
  /* The copy returns when `memory` has been read, perhaps before `words` is written: a non-blocking stream would not
   * wait for that. */
  if (!result && i % 4 == 2)
    result = cuStreamSynchronize(NULL);
  return result;
}

static void *work_until_lost(void *argument) {
  CUstream stream;
  CUdeviceptr words;
  char *memory = calloc(1, LARGE_NBYTES);
  OK(cuCtxSetCurrent(context));
  OK(cuStreamCreate(&stream, (intptr_t)argument & 1));
  OK(cuMemAlloc_v2(&words, LARGE_NBYTES));
  __atomic_add_fetch(&working, 1, __ATOMIC_RELAXED);
  CUresult result = CUDA_SUCCESS;
  for (int i = 0; !result; i++)
    result = one_of_each(stream, words, memory, i);
  EXPECT(result == CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT(launch_fill(words, 1, stream) && cuStreamSynchronize(stream) && cuMemcpyDtoH_v2(memory, words, 8));
  __atomic_add_fetch(&lost, 1, __ATOMIC_RELEASE);
  /* A thread that resets a context must ensure that no other thread uses it meanwhile: the driver's own rule. */
  while (!__atomic_load_n(&renewed, __ATOMIC_ACQUIRE))
    usleep(1000);
  for (int i = 0; i < 1000; i++)
    EXPECT(launch_fill(words, 1, stream) && cuStreamSynchronize(stream) && cuStreamDestroy_v2(stream));
  OK(cuCtxSetCurrent(context));
  for (int i = 0; i < rounds; i++)
    short_life((void *)(intptr_t)i);
  free(memory);
  return NULL;
}

static void scenario_death(void) {
  pthread_t threads[THREADS];
  for (int round = 0; round < rounds; round++) {
    __atomic_store_n(&working, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&lost, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&renewed, 0, __ATOMIC_RELAXED);
    for (intptr_t i = 0; i < THREADS; i++)
      EXPECT(!pthread_create(&threads[i], NULL, work_until_lost, (void *)i));
    while (__atomic_load_n(&working, __ATOMIC_RELAXED) < THREADS)
      usleep(1000);
    usleep(300000);
    vgt_host_kill_worker();
    while (__atomic_load_n(&lost, __ATOMIC_ACQUIRE) < THREADS)
      usleep(1000);
    /* The host has one thread, which answers a hello only once the ended session's work has ended: that may take longer
     * than the client waits for the answer. */
    CUresult reset;
    do
      reset = cuDevicePrimaryCtxReset_v2(0);
    while (reset == CUDA_ERROR_SYSTEM_NOT_READY); /* until the alarm */
    OK(reset);
    begin();
    __atomic_store_n(&renewed, 1, __ATOMIC_RELEASE);
    short_life((void *)5);
    for (int i = 0; i < THREADS; i++)
      pthread_join(threads[i], NULL);
  }
}

/* --- graphs: threads change a node while others look at it and at its graph. CUDA does not allow a program that, so
 * results are not checked, but the worker must survive it. --- */

static CUgraph graph;
static CUgraphNode node;
static CUdeviceptr filled;

static void *use_graph(void *argument) {
  OK(cuCtxSetCurrent(context));
  for (int i = 0; i < 200 * rounds; i++) {
    CUDA_MEMSET_NODE_PARAMS fills = {.dst = filled, .value = (unsigned)i, .elementSize = 4, .width = 8, .height = 1};
    CUgraphExec made;
    CUgraph copy;
    switch ((intptr_t)argument) {
    case 0:
      cuGraphMemsetNodeSetParams(node, &fills);
      break;
    case 1:
      cuGraphMemsetNodeGetParams(node, &fills);
      break;
    case 2:
      if (!cuGraphInstantiateWithFlags(&made, graph, 0))
        cuGraphExecDestroy(made);
      break;
    default:
      if (!cuGraphClone(&copy, graph))
        cuGraphDestroy(copy);
    }
  }
  return NULL;
}

static void scenario_graphs(void) {
  OK(cuMemAlloc_v2(&filled, WORDS * sizeof(uint64_t)));
  CUDA_MEMSET_NODE_PARAMS fills = {.dst = filled, .elementSize = 4, .width = 8, .height = 1};
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fills, context));
  run_threads(use_graph);
  OK(cuGraphDestroy(graph));
  OK(cuMemFree_v2(filled));
}

/* --- exit: the program exits while its threads are still calling --- */

static void *work_for_ever(void *argument) {
  CUstream stream;
  CUdeviceptr words;
  char *memory = calloc(1, LARGE_NBYTES);
  if (cuCtxSetCurrent(context) || cuStreamCreate(&stream, (intptr_t)argument & 1) ||
      cuMemAlloc_v2(&words, LARGE_NBYTES))
    pause();
  for (int i = 0;; i++)
    one_of_each(stream, words, memory, i);
  return NULL;
}

static void scenario_exit(void) {
  pthread_t thread;
  for (intptr_t i = 0; i < THREADS; i++) {
    EXPECT(!pthread_create(&thread, NULL, work_for_ever, (void *)i));
    pthread_detach(thread);
  }
  usleep(300000);
  exit(0);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } scenarios[] = {{"work", scenario_work},   {"full", scenario_full},     {"threads", scenario_threads},
                   {"death", scenario_death}, {"graphs", scenario_graphs}, {"exit", scenario_exit}};
  alarm(TIMEOUT_S);
  rounds = argc > 2 ? atoi(argv[2]) : 8;
  vgt_host_start();
  OK(cuInit(0));
  begin();
  for (size_t i = 0; argc > 1 && i < sizeof scenarios / sizeof scenarios[0]; i++)
    if (!strcmp(argv[1], scenarios[i].name)) {
      scenarios[i].run();
      puts("done");
      return 0;
    }
  return 2;
}
