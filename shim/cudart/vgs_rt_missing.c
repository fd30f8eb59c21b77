/* Reports functions that a program imports but this library lacks before it calls one: the relocations of each loaded
 * object name its imports. Objects that cannot be read are skipped; nothing depends on this report. */
#define _GNU_SOURCE /* dl_iterate_phdr */
#include "vgs_rt_missing.h"
#include "vgs_log.h"
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAMED_MAX = 6 };

struct object {
  const Elf64_Sym *symbols;
  const char *texts;
  uint64_t texts_nbytes;
};

static int compare(const void *name, const void *entry) { return strcmp(name, *(const char *const *)entry); }

/* Record which missing functions the relocations name. */
static void look(const struct object *o, const Elf64_Rela *relocations, uint64_t nbytes, bool *imported) {
  for (uint64_t i = 0; relocations && i < nbytes / sizeof *relocations; i++) {
    const Elf64_Sym *symbol = &o->symbols[ELF64_R_SYM(relocations[i].r_info)];
    if (symbol->st_shndx != SHN_UNDEF || symbol->st_name >= o->texts_nbytes)
      continue;
    const char *name = o->texts + symbol->st_name;
    const char *const *found =
        strncmp(name, "cuda", 4) ? NULL : bsearch(name, vgs_rt_missing, vgs_rt_missing_count, sizeof *found, compare);
    if (found)
      imported[found - vgs_rt_missing] = true;
  }
}

static int look_at_object(struct dl_phdr_info *info, size_t size, void *imported) {
  (void)size;
  const Elf64_Dyn *dynamic = NULL;
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
      dynamic = (const Elf64_Dyn *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
  struct object o = {0};
  const Elf64_Rela *calls = NULL, *others = NULL;
  uint64_t calls_nbytes = 0, others_nbytes = 0;
  bool needs_us = false, plain = true;
  for (const Elf64_Dyn *d = dynamic; d && d->d_tag != DT_NULL; d++)
    switch (d->d_tag) { /* the loader turned offsets into addresses; where it did not (the vDSO), `plain` is false */
    case DT_SYMTAB:
      plain &= d->d_un.d_ptr >= info->dlpi_addr;
      o.symbols = (const Elf64_Sym *)d->d_un.d_ptr;
      break;
    case DT_STRTAB:
      plain &= d->d_un.d_ptr >= info->dlpi_addr;
      o.texts = (const char *)d->d_un.d_ptr;
      break;
    case DT_STRSZ:
      o.texts_nbytes = d->d_un.d_val;
      break;
    case DT_JMPREL:
      calls = (const Elf64_Rela *)d->d_un.d_ptr;
      break;
    case DT_PLTRELSZ:
      calls_nbytes = d->d_un.d_val;
      break;
    case DT_RELA:
      others = (const Elf64_Rela *)d->d_un.d_ptr;
      break;
    case DT_RELASZ:
      others_nbytes = d->d_un.d_val;
      break;
    }
  if (!plain || !o.symbols || !o.texts)
    return 0;
  for (const Elf64_Dyn *d = dynamic; d->d_tag != DT_NULL; d++)
    needs_us |=
        d->d_tag == DT_NEEDED && d->d_un.d_val < o.texts_nbytes && !strcmp(o.texts + d->d_un.d_val, vgs_rt_soname);
  if (needs_us) {
    look(&o, calls, calls_nbytes, imported);
    look(&o, others, others_nbytes, imported);
  }
  return 0;
}

void vgs_rt_missing_tell(void) {
  char names[512] = "";
  size_t used = 0, count = 0;
  /* Shown on a terminal. Elsewhere the function is named only when it is called: most programs never call it, and other
   * programs may parse these lines. */
  enum vgs_log_level level = isatty(STDERR_FILENO) ? VGS_LOG_REASON : VGS_LOG_ERROR;
  if (!vgs_log_enabled(level))
    return;
  bool *imported = calloc(vgs_rt_missing_count + 1, sizeof *imported);
  if (!imported)
    return;
  dl_iterate_phdr(look_at_object, imported);
  for (size_t i = 0; i < vgs_rt_missing_count; i++)
    if (imported[i] && count++ < NAMED_MAX && used < sizeof names)
      used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", vgs_rt_missing[i]);
  free(imported);
  if (count > NAMED_MAX)
    vgs_log(level, "%s may call what %s of vgpu does not implement (cudaErrorNotSupported): %s and %zu more",
            program_invocation_short_name, vgs_rt_soname, names, count - NAMED_MAX);
  else if (count)
    vgs_log(level, "%s may call what %s of vgpu does not implement (cudaErrorNotSupported): %s",
            program_invocation_short_name, vgs_rt_soname, names);
}
