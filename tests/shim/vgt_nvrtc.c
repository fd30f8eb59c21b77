/* A libnvrtc.so that compiles nothing: a program records its compile options. Known are compute_75, 90 and 120.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct program {
  char options[256], name[64];
};

int nvrtcVersion(int *major, int *minor) { return *major = 98, *minor = 76, 0; }
const char *nvrtcGetErrorString(int result) { return result ? "real error" : "real success"; }
int nvrtcGetNumSupportedArchs(int *count) { return *count = 3, 0; }
int nvrtcGetSupportedArchs(int *archs) { return archs[0] = 75, archs[1] = 90, archs[2] = 120, 0; }

int nvrtcCreateProgram(struct program **made, const char *source, const char *name, int headers,
                       const char *const *contents, const char *const *names) {
  (void)source;
  *made = calloc(1, sizeof **made);
  snprintf((*made)->name, sizeof(*made)->name, "%s %d %s %s", name, headers, headers ? contents[headers - 1] : "-",
           headers ? names[headers - 1] : "-");
  return 0;
}

int nvrtcDestroyProgram(struct program **gone) {
  free(*gone);
  *gone = NULL;
  return 0;
}

int nvrtcCompileProgram(struct program *program, int count, const char *const *options) {
  for (int i = 0; i < count; i++)
    snprintf(program->options + strlen(program->options), sizeof program->options - strlen(program->options), "%s ",
             options[i]);
  return count < 0 ? 5 : 0;
}

int nvrtcGetPTXSize(struct program *program, size_t *nbytes) {
  *nbytes = strstr(program->options, "-dlto") ? 1 : strlen(program->options) + 1;
  return 0;
}
int nvrtcGetPTX(struct program *program, char *text) { return strcpy(text, program->options), 0; }
int nvrtcGetCUBINSize(struct program *program, size_t *nbytes) { return (void)program, *nbytes = 6, 0; }
int nvrtcGetCUBIN(struct program *program, char *code) { return (void)program, strcpy(code, "cubin"), 0; }
int nvrtcGetLoweredName(struct program *program, const char *expression, const char **name) {
  return (void)expression, *name = program->name, 0;
}
