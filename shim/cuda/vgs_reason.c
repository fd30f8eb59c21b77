#define _GNU_SOURCE
#include "vgs_reason.h"
#include "vgs_alias.h"
#include "vgs_api.h"
#include "vgs_enter.h"
#include "vgs_log.h"
#include "vgs_logs.h"
#include "vgs_session.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_NBYTES = 1 << 15, KEPT_NBYTES = 2048, TELL_MAX = 2, CODES = 1000 };

/* The reasons that this thread received since vgs_jit_log_start, one per line. */
static _Thread_local char kept[KEPT_NBYTES];
static _Thread_local size_t kept_nbytes;
static _Thread_local bool deferring;

static void keep(const char *text) {
  size_t nbytes = strlen(text), left = KEPT_NBYTES - 1 - kept_nbytes;
  if (nbytes + 1 > left)
    return;
  memcpy(kept + kept_nbytes, text, nbytes);
  kept_nbytes += nbytes;
  kept[kept_nbytes++] = '\n';
  kept[kept_nbytes] = 0;
}

/* Log one line on stderr. Refusals are limited to TELL_MAX for each result, as a program may try many images. */
static void tell(int result, bool ends, const char *text) {
  static unsigned char told[CODES]; /* atomic */
  bool counted = result > 0 && result < CODES && (ends || !deferring);
  unsigned before = counted ? __atomic_fetch_add(&told[result], 1, __ATOMIC_RELAXED) : 0;
  if (before >= TELL_MAX)
    __atomic_store_n(&told[result], TELL_MAX, __ATOMIC_RELAXED);
  vgs_logs_add(text);
  if (deferring && !ends) {
    vgs_log(VGS_LOG_ERROR, "%s", text);
    return;
  }
  vgs_log(before < TELL_MAX || ends ? VGS_LOG_REASON : VGS_LOG_ERROR, "%s", text);
}

/* `E 700 text`: what ended the context; `R 209 text`: why this call was refused. It comes from the host: any other line
 * is ignored. */
static void read_line(char *line) {
  bool ends = line[0] == 'E';
  char *text;
  if ((!ends && line[0] != 'R') || line[1] != ' ' || !isdigit((unsigned char)line[2]))
    return;
  long result = strtol(line + 2, &text, 10);
  if (*text != ' ' || result < 0 || result >= CODES)
    return;
  keep(text + 1);
  tell((int)result, ends, text + 1);
  if (ends && result)
    vgs_session_set_fault((CUresult)result, true);
}

void vgs_reasons_fetch(void) {
  static _Thread_local bool taking; /* the fetching call's own reply announces them, too */
  char *text = taking ? NULL : calloc(1, TEXT_NBYTES + 1);
  if (!text)
    return;
  taking = true;
  if (!vgs_send_vgpuTakeReasons(TEXT_NBYTES, text)) {
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")))
      read_line(line);
  }
  taking = false;
  free(text);
}

bool vgs_reason_is_refusal(CUresult result) {
  bool refused = result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_INVALID_PTX ||
                 result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION || result == CUDA_ERROR_NOT_SUPPORTED;
  const struct vgs_context *context = refused ? vgs_context_current() : NULL;
  return context && vgpuDeviceIsSimulated(context->device) == 1;
}

void vgs_reason_report(CUresult result, const char *text) {
  keep(text);
  tell((int)result, false, text);
}

void vgs_reason_end_context(CUresult result, const char *text) {
  tell((int)result, true, text);
  vgs_session_set_fault(result, true);
}

void vgs_jit_log_start(void) { kept[kept_nbytes = 0] = 0; }

void vgs_reason_defer(void) {
  vgs_jit_log_start();
  deferring = true;
}

char *vgs_reason_deferred(void) {
  deferring = false;
  if (!kept_nbytes)
    return NULL;
  kept[kept_nbytes - 1] = 0; /* the last line's end */
  for (char *end = kept; (end = strchr(end, '\n'));)
    *end = ' ';
  return strdup(kept);
}

/* Copy into the buffer of an option, if its size is given, too; the number of bytes replaces the size. */
static void fill(const char *text, int buffer, unsigned count, const int *options, void **values) {
  char *into = NULL;
  void **size = NULL;
  for (unsigned i = 0; i < count; i++) {
    if (options[i] == buffer)
      into = values[i];
    if (options[i] == buffer + 1)
      size = &values[i];
  }
  if (!size)
    return;
  size_t capacity = (uint32_t)(uintptr_t)*size, nbytes = strlen(text); /* an unsigned int, passed as a pointer */
  if (!into || !capacity)
    nbytes = 0;
  else if (nbytes >= capacity)
    nbytes = capacity - 1;
  if (into && capacity) {
    memcpy(into, text, nbytes);
    into[nbytes] = 0;
  }
  *size = (void *)nbytes;
}

void vgs_jit_log_finish(CUresult result, unsigned count, const int *options, void **values) {
  enum { INFO_LOG_BUFFER = 3, ERROR_LOG_BUFFER = 5 };
  if (!options || !values)
    return;
  if (kept_nbytes)
    kept[--kept_nbytes] = 0; /* the last line's end: NVIDIA's log has none */
  fill("", INFO_LOG_BUFFER, count, options, values);
  fill(result ? kept : "", ERROR_LOG_BUFFER, count, options, values);
}
