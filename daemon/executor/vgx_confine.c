/* A Landlock ruleset applies to the calling thread and to threads that it starts afterwards. A driver that is already
 * running has threads of its own: a signal makes each of them apply the ruleset, too. (LANDLOCK_RESTRICT_SELF_TSYNC
 * does this from Linux 7.0 on.) */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "vgx_confine.h"
#include "vgx_serve.h"

#ifndef SYS_landlock_restrict_self
#define SYS_landlock_restrict_self 446
#endif

/* A thread that blocks the signal is waited for 1 s. A thread that has ended is not listed again. */
enum { THREADS_MAX = 256, LOOKS = 1000, LOOK_NS = 1000000, PASSES = 100, NO_ANSWER = -1 };

static struct {
  pid_t thread;
  atomic_int answer; /* errno */
} asked[THREADS_MAX];
static unsigned count;
static int ruleset_fd;

static void restrict_this(int number) {
  int before = errno;
  pid_t self = (pid_t)syscall(SYS_gettid);
  int answer = syscall(SYS_landlock_restrict_self, ruleset_fd, 0) ? errno : 0;
  for (int i = 0; i < THREADS_MAX; i++)
    if (asked[i].thread == self) /* written before the signal was sent */
      atomic_store(&asked[i].answer, answer);
  errno = before;
  (void)number;
}

static bool was_asked(pid_t thread) {
  for (unsigned i = 0; i < count; i++)
    if (asked[i].thread == thread)
      return true;
  return false;
}

/* Make a thread restrict itself. 0 or an errno. */
static int ask(pid_t thread) {
  if (count == THREADS_MAX)
    return EAGAIN;
  atomic_int *answer = &asked[count].answer;
  atomic_store(answer, NO_ANSWER);
  asked[count++].thread = thread;
  for (int look = 0; look < LOOKS; look++) {
    if (syscall(SYS_tgkill, getpid(), thread, look ? 0 : SIGURG)) { /* signal 0: does the thread still exist? */
      asked[--count].thread = 0;
      return errno;
    }
    if (atomic_load(answer) != NO_ANSWER)
      return atomic_load(answer);
    nanosleep(&(struct timespec){0, look ? LOOK_NS : LOOK_NS / 20}, NULL);
  }
  return ETIMEDOUT;
}

/* Signal the threads that have not been signalled yet; `*more`: whether there were any. */
static int ask_others(bool *more) {
  DIR *tasks = opendir("/proc/self/task");
  if (!tasks)
    return errno;
  int result = 0;
  struct dirent *entry;
  while (!result && (entry = readdir(tasks))) {
    pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);
    if (thread <= 0 || thread == (pid_t)syscall(SYS_gettid) || was_asked(thread))
      continue;
    *more = true;
    result = ask(thread);
    if (result == ESRCH)
      result = 0;
  }
  closedir(tasks);
  return result;
}

int vgx_restrict_threads(int ruleset) {
  struct sigaction ours = {.sa_handler = restrict_this, .sa_flags = SA_RESTART}, before;
  ruleset_fd = ruleset;
  if (syscall(SYS_landlock_restrict_self, ruleset, 0) || sigaction(SIGURG, &ours, &before))
    return errno;
  bool more = true;
  int result = 0;
  for (int pass = 0; more && !result; pass++) { /* a thread that was not yet restricted may have started another one */
    more = false;
    result = pass < PASSES ? ask_others(&more) : ESRCH;
  }
  if (result != ETIMEDOUT) /* otherwise a late signal still needs the handler */
    sigaction(SIGURG, &before, NULL);
  return result;
}
