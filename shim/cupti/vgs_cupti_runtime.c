/* NVIDIA's runtime reports its calls to NVIDIA's CUPTI alone. What its functions do, they do by driver calls: such a
 * call is seen here, and the stack shows which function made it. A runtime that is part of a program or of another
 * library has no exported names, and is not found. vgpu's runtime, which reports its calls itself, is recognised by the
 * ELF note that vgpu's libraries carry (vgs_mark.c). */
#define _GNU_SOURCE
#include "vgs_cupti_runtime.h"
#include "vgs_cupti_caller.h"
#include "vgs_log.h"
#include <link.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char LIBRARY[] = "libcudart.so";

static bool has_mark(const struct dl_phdr_info *object) {
  static const char owner[] = "vgpu";
  enum { ALIGNMENT = 4 };
  for (ElfW(Half) i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    if (segment->p_type != PT_NOTE || segment->p_align > ALIGNMENT)
      continue;
    const char *notes = (const char *)(object->dlpi_addr + segment->p_vaddr); // NOLINT(performance-no-int-to-ptr)
    size_t at = 0;
    while (segment->p_memsz - at >= sizeof(ElfW(Nhdr))) {
      const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)(const void *)(notes + at);
      size_t name = ((size_t)note->n_namesz + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
      size_t text = ((size_t)note->n_descsz + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
      if (segment->p_memsz - at - sizeof *note < name + text)
        break;
      if (note->n_namesz == sizeof owner && !memcmp(note + 1, owner, sizeof owner))
        return true;
      at += sizeof *note + name + text;
    }
  }
  return false;
}

static const char *name_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static bool is_theirs(const struct dl_phdr_info *object) {
  return strncmp(name_of(object->dlpi_name), LIBRARY, strlen(LIBRARY)) == 0 && !has_mark(object);
}

static int find(struct dl_phdr_info *object, size_t nbytes, void *found) {
  (void)nbytes;
  if (!is_theirs(object))
    return 0;
  *(const char **)found = object->dlpi_name;
  return 1;
}

void vgs_cupti_explain_runtime(void) {
  static bool explained; /* atomic */
  const char *theirs = NULL;
  if (__atomic_load_n(&explained, __ATOMIC_RELAXED) || !dl_iterate_phdr(find, &theirs) ||
      __atomic_exchange_n(&explained, true, __ATOMIC_RELAXED))
    return;
  vgs_log(
      VGS_LOG_REASON,
      "of the calls of NVIDIA's CUDA runtime (%.300s) a profile shows those that launch, copy, fill, allocate, free "
      "or wait, with the times of the driver call that each makes, and no others",
      theirs);
}

/* --- which call of the runtime a driver call is made by --- */

/* How a driver call can be made, and what that means. Never freed or changed: read without a lock. */
struct known {
  struct vgs_cupti_path path;
  const struct vgs_cupti_runtime *function; /* NULL: not a call of NVIDIA's runtime */
  uint32_t id;
  struct known *next; /* with the same hash */
};

enum { HASHES = 256, KNOWN_MAX = 4096 };
static struct known *known[HASHES]; /* atomic */
static uint32_t known_count;        /* atomic */

static size_t hash_of(const void *caller) { return ((uintptr_t)caller * 0x9e3779b97f4a7c15u >> 32) % HASHES; }

static struct known *find_known(const struct vgs_api_call *call) {
  struct known *each = __atomic_load_n(&known[hash_of(call->caller)], __ATOMIC_ACQUIRE);
  while (each && (each->path.returns[0] != call->caller ||
                  (each->path.depth && !vgs_cupti_is_on_path(call->frame, &each->path))))
    each = each->next;
  return each;
}

struct library {
  const char *base; /* of the library that is looked for */
  const char *name; /* if it is NVIDIA's runtime; else NULL */
};

static int name_theirs(struct dl_phdr_info *object, size_t nbytes, void *argument) {
  struct library *library = argument;
  (void)nbytes;
  if ((uintptr_t)object->dlpi_addr != (uintptr_t)library->base)
    return 0;
  library->name = is_theirs(object) ? object->dlpi_name : NULL;
  return 1;
}

/* The function of the runtime of that major with that name, of its newest version: the table's names end with the
 * release in which their parameters last changed. */
static const struct vgs_cupti_runtime *newest(const char *name, long major) {
  enum { RELEASES = 1000 }; /* in a major: 13010 is release 1 of 13 */
  const struct vgs_cupti_runtime *found = NULL;
  long best = 0;
  for (size_t i = 0; i < vgs_cupti_runtimes_count; i++) {
    const char *each = vgs_cupti_runtimes[i].name, *version = each ? strrchr(each, '_') : NULL;
    if (!version || strlen(name) != (size_t)(version - each) || strncmp(each, name, (size_t)(version - each)) != 0)
      continue;
    long release = strtol(version + 2, NULL, 10);
    if (release > best && release < (major + 1) * RELEASES) {
      best = release;
      found = &vgs_cupti_runtimes[i];
    }
  }
  return found;
}

/* Examine a call that comes by a way not seen before. */
static struct known *learn(const struct vgs_api_call *call) {
  struct known *made = calloc(1, sizeof *made);
  if (!made)
    return NULL;
  const char *symbol = vgs_cupti_walk(call->caller, call->frame, &made->path);
  struct library library = {.base = made->path.base};
  made->path.returns[0] = call->caller;
  if (library.base)
    dl_iterate_phdr(name_theirs, &library);
  if (!library.name)
    made->path.depth = 0; /* whoever the caller was called by */
  if (library.name && symbol)
    made->function = newest(symbol, strtol(name_of(library.name) + strlen(LIBRARY) + 1, NULL, 10));
  if (made->function)
    made->id = (uint32_t)(made->function - vgs_cupti_runtimes);
  struct known **first = &known[hash_of(call->caller)];
  made->next = __atomic_load_n(first, __ATOMIC_ACQUIRE);
  while (!__atomic_compare_exchange_n(first, &made->next, made, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    continue;
  return made;
}

uint32_t vgs_cupti_runtime_of(const struct vgs_api_call *call, const struct vgs_cupti_function *function) {
  if (!function || function->what == VGS_CALL_OTHER)
    return 0;
  const struct known *found = find_known(call);
  if (!found && __atomic_fetch_add(&known_count, 1, __ATOMIC_RELAXED) < KNOWN_MAX)
    found = learn(call);
  const struct vgs_cupti_runtime *runtime = found ? found->function : NULL;
  return runtime && function->what >= runtime->first && function->what <= runtime->last ? found->id : 0;
}
