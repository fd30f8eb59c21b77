/* vgt_load_images DRIVER: load standard input as module and library with the cuda backend; print results, handles. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vgx_backend.h"
#include "vgx_serve.h"

int main(int argc, char **argv) {
  static uint8_t input[65536];
  const char *why = "";
  const struct vgx_backend *backend = argc == 2 ? vgx_cuda_backend(argv[1], &why) : NULL;
  if (!backend)
    return fprintf(stderr, "%s\n", why), 1;
  size_t nbytes = fread(input, 1, sizeof input / 2, stdin);
  uint8_t *image = calloc(1, nbytes + 64); /* padded as by the executor; the sanitizer checks its end */
  memcpy(image, input, nbytes);
  CUmodule module = NULL;
  CUlibrary library = NULL;
  int results[2] = {backend->load_module(&module, image, nbytes), backend->load_library(&library, image, nbytes)};
  printf("%d %zu %d %zu\n", results[0], (size_t)module, results[1], (size_t)library);
  free(image);
  return 0;
}
