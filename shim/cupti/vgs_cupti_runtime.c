/* NVIDIA's runtime reports its calls to NVIDIA's CUPTI alone. vgpu's runtime is recognised by the ELF note that vgpu's
 * libraries carry (vgs_mark.c). A runtime that is part of a program or of another library is not found. */
#define _GNU_SOURCE
#include "vgs_cupti_runtime.h"
#include "vgs_log.h"
#include <link.h>
#include <stdbool.h>
#include <string.h>

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

static int find(struct dl_phdr_info *object, size_t nbytes, void *found) {
  (void)nbytes;
  const char *slash = strrchr(object->dlpi_name, '/'), *name = slash ? slash + 1 : object->dlpi_name;
  if (strncmp(name, "libcudart.so", strlen("libcudart.so")) != 0 || has_mark(object))
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
  vgs_log(VGS_LOG_REASON,
          "calls of NVIDIA's CUDA runtime (%.300s) are not recorded: a profile shows the driver calls "
          "that they make",
          theirs);
}
