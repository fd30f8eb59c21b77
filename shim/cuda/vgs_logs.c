/* The driver's log for programs: the host's explanations of errors (vgs_reason.h), kept for later queries and passed to
 * registered callbacks. */
#include "vgs_logs.h"
#include "vgs_api.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT_MAX = 100, TEXT_NBYTES = 256, LEVEL_ERROR = 0 }; /* 25,600 bytes, as the driver's manual says */

static const char TRUNCATED[] = "(earlier messages are left out)";

struct entry {
  CUlogsCallback callback;
  void *data;
  struct entry *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char texts[KEPT_MAX][TEXT_NBYTES]; /* message n at n % KEPT_MAX; all under `lock` */
static unsigned count;
static struct entry *entries;

void vgs_logs_add(const char *text) {
  enum { CALLED_MAX = 64 };
  struct entry called[CALLED_MAX];
  char message[TEXT_NBYTES];
  unsigned number = 0;
  snprintf(message, sizeof message, "%s", text);
  pthread_mutex_lock(&lock);
  memcpy(texts[count++ % KEPT_MAX], message, sizeof message);
  for (struct entry *entry = entries; entry && number < CALLED_MAX; entry = entry->next)
    called[number++] = *entry;
  pthread_mutex_unlock(&lock);
  for (unsigned i = 0; i < number; i++) /* unlocked: a callback may register or unregister others */
    called[i].callback(called[i].data, LEVEL_ERROR, message, strlen(message));
}

CUresult vgs_cuLogsRegisterCallback(CUlogsCallback callbackFunc, void *userData, void **callback_out) {
  struct entry *entry = callbackFunc ? malloc(sizeof *entry) : NULL;
  if (!callbackFunc)
    return CUDA_ERROR_INVALID_VALUE;
  if (!entry)
    return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  *entry = (struct entry){callbackFunc, userData, entries};
  entries = entry;
  pthread_mutex_unlock(&lock);
  if (callback_out)
    *callback_out = entry;
  return CUDA_SUCCESS;
}

CUresult vgs_cuLogsUnregisterCallback(void *callback) {
  pthread_mutex_lock(&lock);
  struct entry **link = &entries;
  while (*link && *link != callback)
    link = &(*link)->next;
  struct entry *found = *link;
  if (found)
    *link = found->next;
  pthread_mutex_unlock(&lock);
  free(found);
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vgs_cuLogsCurrent(unsigned *iterator_out, unsigned int flags) {
  if (!iterator_out || flags)
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  *iterator_out = count;
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

static size_t length_locked(unsigned number) { return strlen(texts[number % KEPT_MAX]) + 1; }

/* The messages from `from` on as lines, at most `capacity` bytes with the NUL. If they do not fit: a line that says so,
 * and the newest. */
static size_t write_locked(char *into, size_t capacity, unsigned from) {
  bool truncated = count - from > KEPT_MAX;
  unsigned first = truncated ? count - KEPT_MAX : from;
  size_t needed = 1;
  for (unsigned i = first; i != count; i++)
    needed += length_locked(i);
  if (truncated || needed > capacity)
    needed += sizeof TRUNCATED;
  truncated |= needed > capacity;
  for (; first != count && needed > capacity; first++)
    needed -= length_locked(first);
  if (first == count)
    return 0;
  size_t written = truncated ? (size_t)sprintf(into, "%s\n", TRUNCATED) : 0;
  for (; first != count; first++)
    written += (size_t)sprintf(into + written, "%s\n", texts[first % KEPT_MAX]);
  return written;
}

CUresult vgs_cuLogsDumpToMemory(unsigned *iterator, char *buffer, size_t *size, unsigned int flags) {
  CUresult result = CUDA_SUCCESS;
  if (!buffer || !size || !*size || flags)
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  unsigned from = iterator ? *iterator : count > KEPT_MAX ? count - KEPT_MAX : 0;
  if (count - from > count) /* beyond the end: not an iterator that this library has returned */
    result = CUDA_ERROR_INVALID_VALUE;
  size_t written = result || from == count ? 0 : write_locked(buffer, *size, from);
  if (!result && !written && from != count)
    result = CUDA_ERROR_INVALID_VALUE; /* not even one fits */
  if (!result && iterator)
    *iterator = count;
  pthread_mutex_unlock(&lock);
  buffer[written] = 0;
  *size = written;
  return result;
}

CUresult vgs_cuLogsDumpToFile(unsigned *iterator, const char *pathToFile, unsigned int flags) {
  enum { ALL_NBYTES = KEPT_MAX * TEXT_NBYTES + sizeof TRUNCATED + 1 };
  size_t nbytes = ALL_NBYTES;
  unsigned from = iterator ? *iterator : 0;
  if (!pathToFile || flags)
    return CUDA_ERROR_INVALID_VALUE;
  FILE *file = fopen(pathToFile, "we");
  if (!file)
    return errno == ENOENT ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_OPERATING_SYSTEM;
  char *text = malloc(ALL_NBYTES);
  CUresult result = text ? vgs_cuLogsDumpToMemory(iterator ? &from : NULL, text, &nbytes, 0) : CUDA_ERROR_OUT_OF_MEMORY;
  if (!result && fwrite(text, 1, nbytes, file) != nbytes)
    result = CUDA_ERROR_OPERATING_SYSTEM;
  if (fclose(file) && !result)
    result = CUDA_ERROR_OPERATING_SYSTEM;
  if (!result && iterator)
    *iterator = from;
  free(text);
  return result;
}

void vgs_logs_fini(void) {
  for (struct entry *next; entries; entries = next) {
    next = entries->next;
    free(entries);
  }
}
