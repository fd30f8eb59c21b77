#define _GNU_SOURCE
#include "vgs_copiers.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>

enum { HELPERS = 3 };

static struct {
  pthread_mutex_t lock;
  pthread_cond_t begun, over;
  void (*work)(void *); /* NULL: nothing to do */
  void *copy;
  unsigned turn;    /* counted up for each copy */
  unsigned running; /* helpers that have not finished the current copy */
  unsigned count;   /* threads */
  bool ending;
  pthread_t threads[HELPERS];
} crew = {.lock = PTHREAD_MUTEX_INITIALIZER, .begun = PTHREAD_COND_INITIALIZER, .over = PTHREAD_COND_INITIALIZER};

static void *help(void *unused) {
  unsigned seen = 0;
  pthread_mutex_lock(&crew.lock);
  while (!crew.ending) {
    if (!crew.work || crew.turn == seen) {
      pthread_cond_wait(&crew.begun, &crew.lock);
      continue;
    }
    seen = crew.turn;
    void (*work)(void *) = crew.work;
    void *copy = crew.copy;
    pthread_mutex_unlock(&crew.lock);
    work(copy);
    pthread_mutex_lock(&crew.lock);
    if (!--crew.running)
      pthread_cond_signal(&crew.over);
  }
  pthread_mutex_unlock(&crew.lock);
  return unused;
}

/* Start helpers, if this process may use enough processors. They block all signals: handling those is up to the
 * program. */
static void hire(void) {
  cpu_set_t set; /* holds 1024; the call fails where there are more */
  int processors = sched_getaffinity(0, sizeof set, &set) ? CPU_SETSIZE : CPU_COUNT(&set);
  unsigned wanted = processors > 2 * HELPERS ? HELPERS : processors > 2 ? 1 : 0;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (crew.count < wanted && !pthread_create(&crew.threads[crew.count], NULL, help, NULL))
    crew.count++;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

bool vgs_copiers_start(void (*work)(void *), void *copy) {
  pthread_mutex_lock(&crew.lock);
  if (!crew.count && !crew.ending)
    hire();
  bool free = crew.count && !crew.work && !crew.ending;
  if (free) {
    crew.work = work;
    crew.copy = copy;
    crew.turn++;
    crew.running = crew.count;
    pthread_cond_broadcast(&crew.begun);
  }
  pthread_mutex_unlock(&crew.lock);
  return free;
}

void vgs_copiers_wait(void) {
  pthread_mutex_lock(&crew.lock);
  while (crew.running)
    pthread_cond_wait(&crew.over, &crew.lock);
  crew.work = NULL;
  pthread_mutex_unlock(&crew.lock);
}

void vgs_copiers_fini(void) {
  pthread_mutex_lock(&crew.lock);
  crew.ending = true;
  pthread_cond_broadcast(&crew.begun);
  pthread_mutex_unlock(&crew.lock);
  for (unsigned i = 0; i < crew.count; i++)
    pthread_join(crew.threads[i], NULL);
}
