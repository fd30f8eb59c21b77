/* Settings of core dumps. They are kept and read back, for each context and for the process, before cuInit too. No dump
 * is written: a fault is described on stderr instead (vgs_reason.h). */
#define _GNU_SOURCE
#include "vgs_coredump.h"
#include "vgs_api.h"
#include "vgs_enter.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  ENABLE_ON_EXCEPTION = 1,
  TRIGGER_HOST,
  LIGHTWEIGHT,
  ENABLE_USER_TRIGGER,
  DUMP_FILE,
  PIPE,
  GENERATION_FLAGS,
  SETTINGS,
  TEXT_NBYTES = 1024,
  FLAGS_ALL = 63
};

/* Values by attribute; texts on the heap. Where a context's text is NULL or its value is not set, the process's counts;
 * where the process's is not set, the default. Under `lock`. */
struct vgs_coredump {
  bool is_set[SETTINGS];
  uint32_t values[SETTINGS];
  char *texts[SETTINGS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vgs_coredump of_process;

static bool is_text(int attrib) { return attrib == DUMP_FILE || attrib == PIPE; }
static size_t nbytes_of(int attrib) { return attrib == GENERATION_FLAGS ? sizeof(uint32_t) : sizeof(bool); }

static void default_text(int attrib, char text[TEXT_NBYTES]) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  snprintf(text, TEXT_NBYTES, "%s.cuda.%s.%d", attrib == DUMP_FILE ? "core" : "corepipe", host, (int)getpid());
}

/* `context` NULL: the process. */
static CUresult get(const struct vgs_context *context, int attrib, void *value, size_t *size) {
  char text[TEXT_NBYTES];
  uint32_t number = attrib == TRIGGER_HOST;
  if (attrib < ENABLE_ON_EXCEPTION || attrib >= SETTINGS || !size)
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  const struct vgs_coredump *own = context ? context->coredump : NULL;
  const struct vgs_coredump *from = own && own->is_set[attrib] ? own : &of_process;
  if (from->is_set[attrib])
    number = from->values[attrib];
  if (is_text(attrib) && from->is_set[attrib])
    snprintf(text, sizeof text, "%s", from->texts[attrib]);
  else if (is_text(attrib))
    default_text(attrib, text);
  pthread_mutex_unlock(&lock);
  size_t nbytes = is_text(attrib) ? strlen(text) + 1 : nbytes_of(attrib);
  if (!value) { /* the caller asks for the length */
    *size = nbytes;
    return CUDA_SUCCESS;
  }
  if (*size < nbytes)
    return CUDA_ERROR_INVALID_VALUE;
  bool flag = number;
  memcpy(value, is_text(attrib) ? text : attrib == GENERATION_FLAGS ? (void *)&number : (void *)&flag, nbytes);
  *size = nbytes;
  return CUDA_SUCCESS;
}

static CUresult set(struct vgs_context *context, int attrib, const void *value, const size_t *size) {
  uint32_t number = 0;
  char *text = NULL;
  if (attrib < ENABLE_ON_EXCEPTION || attrib >= SETTINGS || !value || !size)
    return CUDA_ERROR_INVALID_VALUE;
  if (is_text(attrib)) {
    size_t nbytes = strnlen(value, *size);
    if (!nbytes || nbytes >= TEXT_NBYTES)
      return CUDA_ERROR_INVALID_VALUE;
    if (!(text = strndup(value, nbytes)))
      return CUDA_ERROR_OUT_OF_MEMORY;
  } else if (*size < nbytes_of(attrib)) {
    return CUDA_ERROR_INVALID_VALUE;
  } else if (attrib == GENERATION_FLAGS) {
    memcpy(&number, value, sizeof number);
    if (number & ~(uint32_t)FLAGS_ALL)
      return CUDA_ERROR_INVALID_VALUE;
  } else {
    number = *(const unsigned char *)value != 0;
  }
  pthread_mutex_lock(&lock);
  if (context && !context->coredump)
    context->coredump = calloc(1, sizeof *context->coredump);
  struct vgs_coredump *own = context ? context->coredump : &of_process;
  if (own) {
    char *before = own->texts[attrib];
    own->is_set[attrib] = true;
    own->values[attrib] = number;
    own->texts[attrib] = text;
    text = before;
  }
  pthread_mutex_unlock(&lock);
  free(text);
  return own ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vgs_cuCoredumpGetAttributeGlobal(int attrib, void *value, size_t *size) {
  return get(NULL, attrib, value, size);
}

CUresult vgs_cuCoredumpSetAttributeGlobal(int attrib, void *value, size_t *size) {
  return set(NULL, attrib, value, size);
}

CUresult vgs_cuCoredumpGetAttribute(int attrib, void *value, size_t *size) {
  return get(vgs_context_entered, attrib, value, size);
}

/* The pipe and its trigger exist only for the process, not for a context. */
CUresult vgs_cuCoredumpSetAttribute(int attrib, void *value, size_t *size) {
  if (attrib == PIPE || attrib == ENABLE_USER_TRIGGER)
    return CUDA_ERROR_NOT_PERMITTED;
  return set(vgs_context_entered, attrib, value, size);
}

void vgs_coredump_destroy(struct vgs_context *context) {
  pthread_mutex_lock(&lock);
  struct vgs_coredump *own = context->coredump;
  context->coredump = NULL;
  pthread_mutex_unlock(&lock);
  for (int attrib = 0; own && attrib < SETTINGS; attrib++)
    free(own->texts[attrib]);
  free(own);
}
