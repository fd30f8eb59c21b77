/* What a program would see: opens one library by its file and asks it, in the environment it was started with. `vgpu
 * doctor` starts it in the program's place and reads the `key value` lines; a library that crashes ends only this
 * process.
 *
 *   vgpu-probe cuda FILE [TABLE...]   cuInit, devices, and whether each private table (32 hex digits) is served
 *   vgpu-probe nvml FILE
 *   vgpu-probe cudart FILE
 *
 * Exits with 0 when the library opened, whatever it said; 1 when it did not; 2 for wrong use. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES_MAX = 64, TABLES_MAX = 64, MAJOR = 75, MINOR = 76 };

static void *library;

static void *entry(const char *name) {
  void *found = dlsym(library, name);
  if (!found)
    printf("missing %s\n", name);
  return found;
}

/* Device names are untrusted: print each as one line, whatever it contains. */
static void print_text(const char *key, int device, const char *text) {
  printf("%s %d ", key, device);
  for (const char *c = text; *c; c++)
    putchar((unsigned char)*c < ' ' ? '?' : *c);
  putchar('\n');
}

static void ask_device(int ordinal) {
  int (*get)(int *, int) = entry("cuDeviceGet");
  int (*get_name)(char *, int, int) = entry("cuDeviceGetName");
  int (*get_bus)(char *, int, int) = entry("cuDeviceGetPCIBusId");
  int (*get_memory)(size_t *, int) = entry("cuDeviceTotalMem_v2");
  int (*get_attribute)(int *, int, int) = entry("cuDeviceGetAttribute");
  int device, major, minor;
  size_t nbytes;
  char text[256];
  if (!get || get(&device, ordinal))
    return;
  if (get_name && !get_name(text, sizeof text, device))
    print_text("name", ordinal, text);
  if (get_bus && !get_bus(text, sizeof text, device))
    print_text("pci", ordinal, text);
  if (get_memory && !get_memory(&nbytes, device))
    printf("memory %d %zu\n", ordinal, nbytes);
  if (get_attribute && !get_attribute(&major, MAJOR, device) && !get_attribute(&minor, MINOR, device))
    printf("capability %d %d.%d\n", ordinal, major, minor);
}

static void ask_table(const char *text) {
  int (*get)(const void **, const void *) = entry("cuGetExportTable");
  uint8_t uuid[16];
  const void *table = NULL;
  if (!get || strlen(text) != 32)
    return;
  for (int i = 0; i < 16; i++) {
    unsigned byte;
    if (sscanf(text + 2 * (size_t)i, "%2x", &byte) != 1)
      return;
    uuid[i] = (uint8_t)byte;
  }
  int result = get(&table, uuid);
  printf("table %s %d\n", text, result ? result : table ? 0 : 999); /* success without a table would crash callers */
}

/* Print the other file, if any, in which the library's cuGetProcAddress or the process's global scope finds a name: in
 * both, a preloaded file may come before the library. */
static void ask_binding(const char *name, const char *versioned) {
  int (*get)(const char *, void **, int, uint64_t, int *) = entry("cuGetProcAddress_v2");
  Dl_info own, other;
  void *mine = dlsym(library, versioned), *found = NULL;
  if (!mine || !dladdr(mine, &own))
    return;
  if (!get || get(name, &found, 12000, 0, NULL) || !found || !dladdr(found, &other) || own.dli_fbase == other.dli_fbase)
    found = dlsym(RTLD_DEFAULT, versioned);
  if (found && dladdr(found, &other) && own.dli_fbase != other.dli_fbase)
    printf("foreign %s %s\n", versioned, other.dli_fname);
}

static void ask_cuda(int count, char **tables) {
  int (*init)(unsigned) = entry("cuInit");
  int (*get_count)(int *) = entry("cuDeviceGetCount");
  int (*get_version)(int *) = entry("cuDriverGetVersion");
  int (*get_name)(int, const char **) = entry("cuGetErrorName");
  int version, devices, result;
  const char *name;
  if (!init)
    return;
  ask_binding("cuInit", "cuInit");
  ask_binding("cuDeviceGetCount", "cuDeviceGetCount");
  ask_binding("cuMemAlloc", "cuMemAlloc_v2");
  ask_binding("cuLaunchKernel", "cuLaunchKernel");
  result = init(0);
  printf("init %d\n", result);
  if (result && get_name && !get_name(result, &name) && name)
    printf("init_name %s\n", name);
  if (get_version && !get_version(&version))
    printf("version %d\n", version);
  if (!result && get_count && !get_count(&devices)) {
    printf("count %d\n", devices);
    for (int i = 0; i < devices && i < DEVICES_MAX; i++)
      ask_device(i);
  }
  for (int i = 0; i < count && i < TABLES_MAX; i++)
    ask_table(tables[i]);
}

static void ask_nvml(void) {
  int (*init)(void) = entry("nvmlInit_v2");
  int (*get_count)(unsigned *) = entry("nvmlDeviceGetCount_v2");
  unsigned devices;
  if (!init)
    return;
  int result = init();
  printf("init %d\n", result);
  if (!result && get_count && !get_count(&devices))
    printf("count %u\n", devices);
}

static void ask_cudart(void) {
  int (*get_version)(int *) = entry("cudaRuntimeGetVersion");
  int (*get_count)(int *) = entry("cudaGetDeviceCount");
  int version, devices;
  if (get_version && !get_version(&version))
    printf("version %d\n", version);
  if (!get_count)
    return;
  int result = get_count(&devices);
  printf("init %d\n", result);
  if (!result)
    printf("count %d\n", devices);
}

int main(int argc, char **argv) {
  if (argc < 3)
    return 2;
  setvbuf(stdout, NULL, _IOLBF, 0); /* so that lines written before a crash are kept */
  library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    printf("error %s\n", dlerror());
    return 1;
  }
  if (!strcmp(argv[1], "cuda"))
    ask_cuda(argc - 3, argv + 3);
  else if (!strcmp(argv[1], "nvml"))
    ask_nvml();
  else if (!strcmp(argv[1], "cudart"))
    ask_cudart();
  else
    return 2;
  return 0;
}
