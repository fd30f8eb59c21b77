#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "vgs_demangle.h"
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

typedef char *demangle_function(const char *name, char *buffer, size_t *nbytes, int *status);

char *vgs_demangle(const char *name) {
  int status = -1;
  if (strncmp(name, "_Z", 2) != 0)
    return NULL;
  demangle_function *demangle = (demangle_function *)dlsym(RTLD_DEFAULT, "__cxa_demangle");
  if (!demangle) { /* kept: another line may need it */
    void *library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_LOCAL);
    demangle = library ? (demangle_function *)dlsym(library, "__cxa_demangle") : NULL;
  }
  return demangle ? demangle(name, NULL, NULL, &status) : NULL;
}
