/* See vgt_fuzz_evidence.h. The simulator handles SIGSEGV itself, for kernels, and passes on what is not theirs to the
 * handler that was there before, so AddressSanitizer reports no such fault; this handler does. It allocates nothing and
 * takes no lock of the program's. Each thread writes its own stack, asked by a signal. */
#define _GNU_SOURCE
#include "vgt_fuzz_evidence.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { FRAMES = 48, WORDS = 64, THREADS_MAX = 256, ANSWER_MS = 500, TEXT_NBYTES = 4096, NAME_NBYTES = 32 };
static const int ending[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGALRM};
enum { ENDING = sizeof ending / sizeof *ending };

extern const char __executable_start[];
static const char *file_name;
static const struct vgt_batch *running;
static atomic_int reporter, answered; /* id of the thread that reports; number of stacks written */
static int out;

static int thread_id(void) { return (int)syscall(SYS_gettid); }

/* Without a stream and without memory of its own. */
__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...) {
  char line[512];
  va_list args;
  va_start(args, format);
  int length = vsnprintf(line, sizeof line, format, args);
  va_end(args);
  if (length > 0 && write(out, line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1) < 0)
    return;
}

static void tell_stack(void) {
  void *frames[FRAMES];
  backtrace_symbols_fd(frames, backtrace(frames, FRAMES), out);
}

static int signal_for_stacks(void) { return SIGRTMIN + 9; }

static void on_asked(int signal) {
  (void)signal;
  int error = errno;
  char name[NAME_NBYTES] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  tell("thread %d %s:\n", thread_id(), name);
  tell_stack();
  atomic_fetch_add(&answered, 1);
  errno = error;
}

static void sleep_ms(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

/* One thread after the other, so that their lines do not mix. */
static void ask_threads(void) {
  struct entry { /* of getdents64(2) */
    uint64_t inode, offset;
    uint16_t nbytes;
    uint8_t type;
    char name[];
  };
  _Alignas(8) char entries[TEXT_NBYTES];
  static int ids[THREADS_MAX];
  int tasks = open("/proc/self/task", O_RDONLY | O_DIRECTORY), count = 0;
  for (long got; (got = syscall(SYS_getdents64, tasks, entries, sizeof entries)) > 0;)
    for (long at = 0; at < got; at += ((const struct entry *)(const void *)(entries + at))->nbytes) {
      int id = atoi(((const struct entry *)(const void *)(entries + at))->name);
      if (id > 0 && count < THREADS_MAX)
        ids[count++] = id;
    }
  close(tasks);
  tell("threads %d\n", count);
  for (int i = 0; i < count; i++) {
    int before = atomic_load(&answered);
    if (ids[i] == thread_id() || syscall(SYS_tgkill, getpid(), ids[i], signal_for_stacks()))
      continue;
    for (int waited = 0; waited < ANSWER_MS && atomic_load(&answered) == before; waited += 5)
      sleep_ms(5);
    if (atomic_load(&answered) == before)
      tell("thread %d does not answer\n", ids[i]);
  }
}

static void copy_file(const char *path) {
  char text[TEXT_NBYTES];
  int from = open(path, O_RDONLY);
  for (ssize_t got; (got = read(from, text, sizeof text)) > 0;)
    if (write(out, text, (size_t)got) != got)
      break;
  close(from);
}

static void tell_registers(const ucontext_t *context) {
#if defined(__x86_64__)
  static const char *const names[] = {"r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15", "rdi",
                                      "rsi", "rbp", "rbx", "rdx", "rax", "rcx", "rsp", "rip"};
  for (int i = 0; i <= REG_RIP; i++)
    tell("%s %#llx%s", names[i], (unsigned long long)context->uc_mcontext.gregs[i], i % 6 == 5 ? "\n" : " ");
  tell("error %#llx trap %lld\n", (unsigned long long)context->uc_mcontext.gregs[REG_ERR],
       (long long)context->uc_mcontext.gregs[REG_TRAPNO]);
  uint64_t words[WORDS];
  struct iovec to = {words, sizeof words},
               from = {(void *)(uintptr_t)context->uc_mcontext.gregs[REG_RSP], sizeof words};
  ssize_t got = process_vm_readv(getpid(), &to, 1, &from, 1, 0); /* the stack may be what is missing */
  tell("stack's words: %zd bytes\n", got);
  for (int i = 0; i < (int)(got / 8); i++)
    tell("%#llx%s", (unsigned long long)words[i], i % 8 == 7 ? "\n" : " ");
#else
  (void)context;
#endif
}

static void on_end(int number, siginfo_t *info, void *context) {
  int nobody = 0;
  signal(number, SIG_DFL);
  if (!atomic_compare_exchange_strong(&reporter, &nobody, thread_id())) {
    if (nobody != thread_id()) /* another thread reports, and ends the process */
      sleep_ms(60000);
    return; /* a fault of the report itself: it happens again, and ends the process */
  }
  out = open(file_name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  tell("signal %d code %d address %p thread %d sender %d\n", number, info->si_code, info->si_addr, thread_id(),
       info->si_code <= 0 ? info->si_pid : 0);
  tell("seed %llu session %u of its process\nprogram at %p\n", (unsigned long long)running->seed, running->count,
       (const void *)__executable_start);
  tell_registers(context);
  tell("stack:\n");
  tell_stack();
  ask_threads();
  tell("maps:\n");
  copy_file("/proc/self/maps");
  tell("status:\n");
  copy_file("/proc/self/status");
  close(out);
  syscall(SYS_tgkill, getpid(), thread_id(), number); /* blocked until this handler returns */
}

void vgt_evidence_init(const char *path, const struct vgt_batch *batch) {
  void *frames[1];
  file_name = path;
  running = batch;
  backtrace(frames, 1); /* loads the library that it needs */
  struct sigaction end = {.sa_flags = SA_SIGINFO | SA_ONSTACK}, asked = {.sa_flags = SA_ONSTACK | SA_RESTART};
  end.sa_sigaction = on_end;
  asked.sa_handler = on_asked;
  sigemptyset(&end.sa_mask);
  sigemptyset(&asked.sa_mask);
  for (int i = 0; i < ENDING; i++)
    sigaction(ending[i], &end, NULL);
  sigaction(signal_for_stacks(), &asked, NULL);
}

__attribute__((noinline)) static void *vgt_evidence_crash(void *where) {
  *(volatile int *)where = 1; /* no_sanitize: the fault itself is wanted */
  return where;
}

void vgt_evidence_test(const struct vgt_batch *batch) {
  const char *wanted = getenv("VGT_CRASH");
  pthread_t thread;
  if (wanted && strtoul(wanted, NULL, 10) == batch->count &&
      !pthread_create(&thread, NULL, vgt_evidence_crash, (void *)(uintptr_t)TEXT_NBYTES))
    pthread_join(thread, NULL);
}

void vgt_batch_add(struct vgt_batch *batch, const struct vgt_input *input) {
  struct vgt_input *to = &batch->inputs[batch->count];
  memcpy(to, input, sizeof *input - sizeof input->data + input->nbytes);
  batch->count++;
}

/* A file is the inputs one after the other, each without the unused end of its data. */
bool vgt_batch_save(const struct vgt_batch *batch, const char *path) {
  FILE *file = fopen(path, "w");
  if (!file)
    return false;
  bool done = true;
  for (uint32_t i = 0; i < batch->count; i++)
    done &= fwrite(&batch->inputs[i], sizeof *batch->inputs - VGT_INPUT_NBYTES + batch->inputs[i].nbytes, 1, file) == 1;
  return fclose(file) == 0 && done;
}

bool vgt_batch_load(struct vgt_batch *batch, const char *path) {
  FILE *file = fopen(path, "r");
  if (!file)
    return false;
  batch->count = 0;
  for (struct vgt_input *to = batch->inputs; batch->count < VGT_SESSIONS; to++, batch->count++)
    if (fread(to, sizeof *to - VGT_INPUT_NBYTES, 1, file) != 1 || to->nbytes > VGT_INPUT_NBYTES ||
        !(to->nbytes ? fread(to->data, to->nbytes, 1, file) == 1 : to->walk != 0))
      break;
  fclose(file);
  errno = EINVAL;
  return batch->count;
}
