/* The unwinder is libgcc's, loaded when it is first needed: a library of a program without it could not be preloaded.
 */
#define _GNU_SOURCE
#include "vgs_cupti_caller.h"
#include <link.h>
#include <pthread.h>
#include <string.h>
#include <unwind.h>

static _Unwind_Reason_Code (*backtrace)(_Unwind_Trace_Fn, void *);
static _Unwind_Ptr (*get_ip)(struct _Unwind_Context *);
static _Unwind_Word (*get_cfa)(struct _Unwind_Context *);
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find_unwinder(void) {
  void *library = dlopen("libgcc_s.so.1", RTLD_NOW);
  void *found[3] = {0};
  if (library) {
    found[0] = dlsym(library, "_Unwind_GetIP");
    found[1] = dlsym(library, "_Unwind_GetCFA");
    found[2] = dlsym(library, "_Unwind_Backtrace");
  }
  memcpy(&get_ip, &found[0], sizeof get_ip);
  memcpy(&get_cfa, &found[1], sizeof get_cfa);
  if (get_ip && get_cfa)
    memcpy(&backtrace, &found[2], sizeof backtrace);
}

struct walk {
  const char *caller, *frame;
  struct vgs_cupti_path *path;
  const char *last; /* the outermost return address in the library */
  bool complete;
};

/* Find the library that holds path->returns[0]. */
static int find_library(struct dl_phdr_info *object, size_t nbytes, void *argument) {
  struct vgs_cupti_path *path = argument;
  const char *code = path->returns[0], *base = (const char *)object->dlpi_addr; // NOLINT(performance-no-int-to-ptr)
  const char *end = base;
  (void)nbytes;
  for (ElfW(Half) i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    if (segment->p_type == PT_LOAD && base + segment->p_vaddr + segment->p_memsz > end)
      end = base + segment->p_vaddr + segment->p_memsz;
  }
  if (code < base || code >= end)
    return 0;
  path->base = base;
  path->end = end;
  return 1;
}

static bool is_inside(const struct vgs_cupti_path *path, const char *code) {
  return code >= path->base && code < path->end;
}

/* A frame's CFA, as this library gives it to a tracing function, is the stack pointer behind the return address. */
static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *argument) {
  struct walk *walk = argument;
  struct vgs_cupti_path *path = walk->path;
  const char *code = (const char *)get_ip(context);    // NOLINT(performance-no-int-to-ptr)
  const char *behind = (const char *)get_cfa(context); // NOLINT(performance-no-int-to-ptr)
  if (!path->depth && (code != walk->caller || behind != walk->frame))
    return _URC_NO_REASON;
  if (path->depth)
    path->offsets[path->depth] = (uint32_t)(behind - walk->frame - sizeof code);
  walk->complete = path->depth && !is_inside(path, code);
  if (walk->complete || path->depth == VGS_CALLER_DEPTH - 1)
    return _URC_END_OF_STACK;
  path->returns[path->depth++] = walk->last = code;
  return _URC_NO_REASON;
}

const char *vgs_cupti_walk(const void *caller, const char *frame, struct vgs_cupti_path *path) {
  struct walk walk = {.caller = caller, .frame = frame, .path = path};
  Dl_info info;
  const ElfW(Sym) *symbol = NULL;
  pthread_once(&once, find_unwinder);
  *path = (struct vgs_cupti_path){.returns = {caller}};
  if (!backtrace || !dl_iterate_phdr(find_library, path))
    return NULL;
  backtrace(step, &walk);
  if (!walk.complete) {
    path->depth = 0;
    return NULL;
  }
  /* A call may be a function's last instruction. */
  if (!dladdr1(walk.last - 1, &info, (void **)(void *)&symbol, RTLD_DL_SYMENT) || !info.dli_sname || !symbol ||
      (size_t)(walk.last - 1 - (const char *)info.dli_saddr) >= symbol->st_size)
    return NULL;
  return info.dli_sname;
}

static const char *at(const char *frame, uint32_t offset) {
  const char *found;
  memcpy(&found, frame + offset, sizeof found);
  return found;
}

/* Each comparison shows that the next offset lies in the stack: equal return addresses have frames of equal size. */
bool vgs_cupti_is_on_path(const char *frame, const struct vgs_cupti_path *path) {
  for (uint32_t i = 1; i < path->depth; i++)
    if (at(frame, path->offsets[i]) != path->returns[i])
      return false;
  return !is_inside(path, at(frame, path->offsets[path->depth]));
}
