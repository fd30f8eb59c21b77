/* vgx_template_release in a forked child: which pages it drops, which it keeps as differences (vgx_fold.h), and that
 * reading them afterwards gives their contents. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vgx_template.h"

enum { PAGE = 4096, PAGES = 8, THREADS = 8 };

#define CHECK(condition)                                                                                               \
  if (!(condition))                                                                                                    \
  exit(__LINE__ % 200 + 1)

static char *memory, *objects; /* of PAGES pages each: the second folds */

static void write_some(volatile char *to) {
  for (int i = 0; i < 3; i++) { /* written, and as it was */
    to[i * PAGE + 7] = 'x';
    to[i * PAGE + 7] = (char)('a' + i);
  }
  to[4 * PAGE] = 'x';
  to[6 * PAGE] = 'x'; /* was never written before the fork */
  to[7 * PAGE] = 'x';
  to[7 * PAGE] = 0;
}

static bool is_right(const volatile char *where) {
  for (int i = 0; i < 4; i++)
    if (where[i * PAGE + 7] != 'a' + i)
      return false;
  return where[4 * PAGE] == 'x' && where[4 * PAGE + 7] == 'e' && where[6 * PAGE] == 'x' && where[7 * PAGE] == 0;
}

static bool can_read(const void *address) {
  int ends[2];
  CHECK(pipe(ends) == 0);
  bool can = write(ends[1], address, 1) == 1;
  CHECK(can || errno == EFAULT);
  close(ends[0]);
  close(ends[1]);
  return can;
}

static pthread_barrier_t together;

static void *look(void *unused) {
  pthread_barrier_wait(&together);
  CHECK(is_right(objects));
  return unused;
}

static void drops(void) {
  vgx_template_open();
  write_some(memory);
  CHECK(vgx_template_release() == 4 * PAGE);
  CHECK(is_right(memory));
  memory[0] = 'y'; /* a dropped page can be written again */
  CHECK(memory[0] == 'y' && memory[7] == 'a');
  CHECK(vgx_template_release() == 0); /* once for each time that it is opened */
}

static void folds(void) {
  vgx_template_open();
  write_some(objects);
  memset(objects + 5 * PAGE, 'z', PAGE); /* differs in each word */
  CHECK(vgx_template_release() == 7 * PAGE);
  for (int i = 0; i < PAGES; i++)
    CHECK(!can_read(objects + i * PAGE) && can_read(memory + i * PAGE));
  pthread_t threads[THREADS];
  pthread_barrier_init(&together, NULL, THREADS);
  for (int i = 0; i < THREADS; i++)
    CHECK(pthread_create(&threads[i], NULL, look, NULL) == 0);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  for (int i = 0; i < PAGE; i++)
    CHECK(objects[5 * PAGE + i] == 'z');
  CHECK(can_read(objects));
  objects[PAGE + 1] = 'y';
  CHECK(objects[PAGE + 1] == 'y' && objects[PAGE + 7] == 'b');
}

static void changes_by_its_first_access(void) {
  vgx_template_open();
  objects[3] = 'x';
  CHECK(vgx_template_release() == PAGE);
  ((volatile char *)objects)[6 * PAGE] = 'y';
  CHECK(objects[3] == 'x' && objects[6 * PAGE] == 'y' && objects[7] == 'a');
}

static void faults_elsewhere(void) {
  vgx_template_open();
  objects[3] = 'x';
  CHECK(vgx_template_release() == PAGE);
  *(volatile char *)mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) = 'x';
}

static void faults_where_it_was_folded(void) {
  vgx_template_open();
  objects[3] = 'x';
  CHECK(vgx_template_release() == PAGE);
  CHECK(objects[3] == 'x');
  munmap(objects, PAGE);
  *(volatile char *)objects = 'x'; /* ends the process, rather than to be repeated for ever */
}

static int after(void (*child)(void)) {
  pid_t pid = fork();
  if (pid == 0) {
    child();
    _exit(0);
  }
  int status;
  CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
  if (WIFEXITED(status) && WEXITSTATUS(status))
    exit(WEXITSTATUS(status));
  return status;
}

static char *pages(void) { /* far from this thread's own memory, which stays as it is */
  char *made = mmap(NULL, (size_t)1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(made != MAP_FAILED);
  made += 1 << 19;
  for (int i = 0; i < 6; i++)
    made[i * PAGE + 7] = (char)('a' + i);
  return made;
}

int main(void) {
  memory = pages();
  objects = pages();
  CHECK(vgx_template_release() == 0); /* no template, nothing opened */
  struct vgx_range ranges[] = {{(uintptr_t)memory, (size_t)PAGES * PAGE, false},
                               {(uintptr_t)objects, (size_t)PAGES * PAGE, true}};
  CHECK(vgx_template_make(ranges, 2) == 0);
  for (int i = 0; i < 6; i++)
    CHECK(memory[i * PAGE + 7] == 'a' + i && objects[i * PAGE + 7] == 'a' + i);
  CHECK(after(drops) == 0);
  CHECK(after(folds) == 0);
  CHECK(after(changes_by_its_first_access) == 0);
  int status = after(faults_elsewhere);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  status = after(faults_where_it_was_folded);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  CHECK(memory[7] == 'a' && memory[4 * PAGE] == 0 && memory[6 * PAGE] == 0 && objects[6 * PAGE] == 0);
  return 0;
}
