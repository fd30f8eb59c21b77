#ifndef VGT_FUZZ_MUST_H
#define VGT_FUZZ_MUST_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* End the process if what a search cannot do without has failed. */
static inline void vgt_must(bool true_now, const char *what) {
  if (!true_now) {
    perror(what);
    abort();
  }
}

#endif
