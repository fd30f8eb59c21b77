/* See vgs_host_stack.h. Each process appends to a file of its own, named by 31 random bits in hexadecimal:
 *
 *   stack 1 cuLaunchKernel
 *   frame <offset in the module> <symbol, or -> <the module's path>
 *   python <a line of Python's own traceback>
 *
 * Frames are innermost first and begin with the caller of the named function. */
#define _GNU_SOURCE /* dladdr1, memfd_create */
#include "vgs_host_stack.h"
#include "vgs_profiling.h"
#include "vgw_wire.h"
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

enum {
  FRAMES_MAX = 52, /* four of them are functions of this library */
  PYTHON_NBYTES = 16384,
  TEXT_NBYTES = 65536,
  SEEN = 8192 /* slots of stacks; stacks beyond three quarters of them have no number */
};

static char folder[PATH_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static uint32_t key, last_index;
static struct {
  uint64_t hash;
  uint32_t index; /* 0: the slot is free */
} seen[SEEN];
static char text[TEXT_NBYTES];
static size_t used;

/* Python's interpreter, if the process has one. */
static void *(*python_thread)(void);
static void (*python_dump)(int fd, void *thread);

static void put(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void put(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int nbytes = vsnprintf(text + used, sizeof text - used, format, arguments);
  va_end(arguments);
  if (nbytes > 0 && (size_t)nbytes < sizeof text - used) /* else the line is left out */
    used += (size_t)nbytes;
  text[used] = 0;
}

static void put_frame(const char *address) {
  Dl_info info;
  struct link_map *map = NULL;
  char program[PATH_MAX];
  if (!dladdr1(address - 1, &info, (void **)(void *)&map, RTLD_DL_LINKMAP)) { /* of the call */
    put("frame %llx - -\n", (unsigned long long)(uintptr_t)address);
    return;
  }
  const char *path = info.dli_fname;
  if (map && !*map->l_name) { /* the program itself: dladdr says how it was called */
    ssize_t nbytes = readlink("/proc/self/exe", program, sizeof program - 1);
    if (nbytes > 0) {
      program[nbytes] = 0;
      path = program;
    }
  }
  put("frame %llx %s %s\n", (unsigned long long)(address - (const char *)info.dli_fbase),
      info.dli_sname ? info.dli_sname : "-", path);
}

/* Python's traceback of this thread. Needs no interpreter lock: the frames of a thread that is inside a call stay as
 * they are. Returns its length. */
static size_t read_python(char traceback[PYTHON_NBYTES]) {
  void *thread = python_thread ? python_thread() : NULL;
  int fd = thread ? memfd_create("vgpu-traceback", MFD_CLOEXEC) : -1;
  if (fd < 0)
    return 0;
  python_dump(fd, thread);
  ssize_t nbytes = pread(fd, traceback, PYTHON_NBYTES, 0);
  close(fd);
  return nbytes > 0 ? (size_t)nbytes : 0;
}

static void put_python(const char *traceback, size_t nbytes) {
  for (const char *line = traceback, *end = traceback + nbytes, *next; line < end; line = next + 1) {
    next = memchr(line, '\n', (size_t)(end - line));
    if (!next)
      break;                                           /* cut short */
    if (next - line > 2 && memcmp(line, "  ", 2) == 0) /* not the heading */
      put("python %.*s\n", (int)(next - line - 2), line + 2);
  }
}

/* Continue an FNV-1a hash with these bytes. */
static uint64_t hashed(uint64_t hash, const void *data, size_t nbytes) {
  for (const unsigned char *at = data, *end = at + nbytes; at < end; at++)
    hash = (hash ^ *at) * 0x100000001b3u;
  return hash;
}

static bool save(void) {
  char path[PATH_MAX + 16];
  snprintf(path, sizeof path, "%s/%x", folder, key);
  int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  bool whole = fd >= 0 && write(fd, text, used) == (ssize_t)used;
  if (fd >= 0)
    close(fd);
  return whole;
}

/* The number of a stack, which is written to the file when it is new. 0: it has none. */
static uint64_t number_locked(const char *name, void **frames, int count, const char *traceback, size_t nbytes) {
  uint64_t hash = hashed(0xcbf29ce484222325u, frames, (size_t)count * sizeof *frames);
  hash = hashed(hashed(hash, traceback, nbytes), name, strlen(name));
  uint32_t slot = (uint32_t)hash % SEEN;
  while (seen[slot].index && seen[slot].hash != hash)
    slot = (slot + 1) % SEEN;
  if (!seen[slot].index) {
    if (last_index >= SEEN / 4 * 3 || (!key && getrandom(&key, sizeof key, 0) != sizeof key))
      return 0;
    key &= INT32_MAX;
    used = 0;
    put("stack %u %s\n", last_index + 1, name);
    for (int i = 0; i < count; i++)
      put_frame(frames[i]);
    put_python(traceback, nbytes);
    if (!save())
      return 0;
    seen[slot].hash = hash;
    seen[slot].index = ++last_index;
  }
  return VGW_HOST_STACK | (uint64_t)key << 32 | seen[slot].index;
}

static void enter(struct vgs_api_call *call) {
  void *frames[FRAMES_MAX];
  char traceback[PYTHON_NBYTES];
  if (!call->stacked)
    return;
  int count = backtrace(frames, FRAMES_MAX), first = 0;
  while (first < count && frames[first] != call->caller)
    first++;
  if (first == count) { /* the unwinder has not passed through this library */
    frames[0] = (void *)(uintptr_t)call->caller;
    first = 0;
    count = 1;
  }
  size_t nbytes = read_python(traceback);
  pthread_mutex_lock(&lock);
  uint64_t number = number_locked(call->name, frames + first, count - first, traceback, nbytes);
  pthread_mutex_unlock(&lock);
  vgs_profiling_correlate(number);
  call->correlation = number != 0;
}

static void leave(struct vgs_api_call *call, int result) {
  (void)call;
  (void)result;
  vgs_profiling_correlate(0);
}

/* A forked child's stacks are its own: it has a file of another name. */
static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }
static void in_child(void) {
  key = last_index = 0;
  memset(seen, 0, sizeof seen);
  pthread_mutex_unlock(&lock);
}

static void begin(void) {
  static const struct vgs_observer observer = {.enter = enter, .leave = leave};
  const char *wanted = secure_getenv("VGPU_HOST_STACKS");
  if (!wanted || *wanted != '/' || strlen(wanted) >= sizeof folder || pthread_atfork(before_fork, after_fork, in_child))
    return;
  strcpy(folder, wanted);
  void *found[] = {dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState"), dlsym(RTLD_DEFAULT, "_Py_DumpTraceback")};
  if (found[0] && found[1]) {
    memcpy(&python_thread, &found[0], sizeof python_thread);
    memcpy(&python_dump, &found[1], sizeof python_dump);
  }
  vgs_profiling_otherwise(&observer);
}

void vgs_host_stack_begin(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, begin);
}
