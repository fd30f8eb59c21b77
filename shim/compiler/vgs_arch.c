#include "vgs_arch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const arch_names[] = {"--gpu-architecture", "-arch"};
static const char *const register_names[] = {"--maxrregcount", "-maxrregcount"};
enum { NAMES = 2, REGISTERS_MAX = 255 };

/* The value in "-arch=sm_90", or in the option after "-arch"; NULL if this is neither. */
static const char *value_of(const struct vgs_options *options, int i, const char *const names[NAMES]) {
  for (size_t n = 0; n < NAMES; n++) {
    size_t nbytes = strlen(names[n]);
    if (!strncmp(options->items[i], names[n], nbytes) && options->items[i][nbytes] == '=')
      return options->items[i] + nbytes + 1;
    if (i > 0 && options->items[i - 1] && !strcmp(options->items[i - 1], names[n]))
      return options->items[i];
  }
  return NULL;
}

bool vgs_options_init(struct vgs_options *options, int count, const char *const *items) {
  *options = (struct vgs_options){.at = -1};
  if (count < 0 || (count && !items))
    count = 0; /* the compiler refuses such options itself */
  options->items = calloc((size_t)count + 1, sizeof *options->items);
  if (!options->items)
    return false;
  options->count = count;
  if (count)
    memcpy(options->items, items, (size_t)count * sizeof *items);
  for (int i = 0; i < count; i++) {
    if (!options->items[i])
      continue;
    const char *limit = value_of(options, i, register_names);
    if (limit) {
      long registers = strtol(limit, NULL, 10);
      options->registers = registers <= 0 ? 0 : registers < REGISTERS_MAX ? (int)registers : REGISTERS_MAX;
    }
    const char *value = value_of(options, i, arch_names);
    bool machine = value && !strncmp(value, "sm_", 3);
    const char *number = machine ? value + 3 : value && !strncmp(value, "compute_", 8) ? value + 8 : NULL;
    if (!number || value - options->items[i] > VGS_ARCH_TEXT_NBYTES / 2)
      continue;
    options->at = i;
    options->original = options->items[i];
    options->prefix = (int)(value - options->items[i]);
    options->asked = (int)strtol(number, NULL, 10);
    options->machine = machine;
  }
  return true;
}

size_t vgs_register_limit(char text[VGS_LIMIT_NBYTES], int registers) {
  *text = 0;
  return registers ? (size_t)snprintf(text, VGS_LIMIT_NBYTES, "\n.pragma \"vgpu_maxnreg %d\";\n", registers) : 0;
}

void vgs_options_fini(struct vgs_options *options) { free(options->items); }

void vgs_options_set_arch(struct vgs_options *options, int number) {
  snprintf(options->arch, sizeof options->arch, "%.*s%s_%d", options->prefix, options->original,
           options->machine ? "sm" : "compute", number);
  options->items[options->at] = options->arch;
}
