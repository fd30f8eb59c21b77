/* Names of C++ as they were written, for what people read. */
#ifndef VGS_DEMANGLE_H
#define VGS_DEMANGLE_H

/* Malloc'ed; NULL if `name` is not mangled or no C++ library is there. Loads libstdc++ if the program has none. */
char *vgs_demangle(const char *name);

#endif
