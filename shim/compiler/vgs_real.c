/* Finding the real library. The program asked for it by its soname and was given this one, so the loader's own search
 * cannot be used: it would return this library for that name. The places are those where the loader and Python packages
 * look, in their order. */
#define _GNU_SOURCE /* dladdr, dlinfo, dl_iterate_phdr */
#include "vgs_real.h"
#include "vgs_log.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The build gives VGS_STEM ("libnvrtc.so."), VGS_MAJOR, VGS_PATH_VARIABLE and VGS_PYPI, the folder of the
 * library in NVIDIA's packages for CUDA 12. A program may load this library in one major and have NVIDIA's in the
 * other: cuda-pathfinder takes whichever is loaded. */
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#if VGS_MAJOR == 13
enum { OTHER_MAJOR = 12 };
#else
enum { OTHER_MAJOR = 13 };
#endif
static const int majors[] = {VGS_MAJOR, OTHER_MAJOR};
enum { MAJORS = sizeof majors / sizeof *majors, PARENTS = 4, OBJECTS_MAX = 4096, CACHE_NBYTES_MAX = 64 << 20 };

static void *library;
static char library_path[PATH_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const void *first_caller;

struct search {
  char name[64]; /* the soname looked for */
  struct stat own;
};

/* Open the file, unless it is this library or no regular file. */
static bool try_file(const struct search *search, const char *path) {
  struct stat found;
  if (stat(path, &found) || !S_ISREG(found.st_mode) ||
      (found.st_dev == search->own.st_dev && found.st_ino == search->own.st_ino))
    return false;
  library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND); /* NVIDIA's library must call itself, not this one */
  if (!library) {
    vgs_log(VGS_LOG_INFO, "%s", dlerror());
    return false;
  }
  if (dlsym(library, "vgpuCompilerStandIn")) { /* another copy of this library */
    dlclose(library);
    library = NULL;
    return false;
  }
  snprintf(library_path, sizeof library_path, "%s", path);
  return true;
}

static bool try_folder(const struct search *search, const char *folder, const char *below) {
  char path[PATH_MAX];
  int nbytes = snprintf(path, sizeof path, "%s%s/%s", folder, below, search->name);
  return *folder && nbytes < (int)sizeof path && try_file(search, path);
}

/* Where NVIDIA's packages from PyPI lie, below a folder of Python packages; conda's are in lib. */
static bool try_packages(const struct search *search, const char *folder) {
  return try_folder(search, folder, "/nvidia/cu13/lib") || try_folder(search, folder, VGS_PYPI);
}

/* Each entry of a variable like PATH. */
static bool try_list(const struct search *search, const char *variable,
                     bool (*one)(const struct search *, const char *)) {
  const char *at = secure_getenv(variable);
  while (at && *at) {
    size_t nbytes = strcspn(at, ":");
    char entry[PATH_MAX];
    if (nbytes && nbytes < sizeof entry) {
      memcpy(entry, at, nbytes);
      entry[nbytes] = 0;
      if (one(search, entry))
        return true;
    }
    at += nbytes + (at[nbytes] == ':');
  }
  return false;
}

static bool try_toolkit(const struct search *search, const char *folder) {
  return try_folder(search, folder, "/lib64") || try_folder(search, folder, "/lib") ||
         try_folder(search, folder, "/targets/x86_64-linux/lib");
}

static bool is_systems(const char *folder) { return !strncmp(folder, "/lib", 4) || !strncmp(folder, "/usr/lib", 8); }

/* The caller's RPATH, LD_LIBRARY_PATH and RUNPATH, as the loader has them; the system's folders come last. */
static bool try_search_path_of(const struct search *search, const void *caller) {
  Dl_info where;
  void *object = dladdr(caller, &where) ? dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
  if (!object && !(object = dlopen(NULL, RTLD_LAZY)))
    return false;
  bool found = false;
  Dl_serinfo sizes;
  Dl_serinfo *paths = dlinfo(object, RTLD_DI_SERINFOSIZE, &sizes) ? NULL : malloc(sizes.dls_size);
  if (paths) {
    *paths = sizes;
    if (!dlinfo(object, RTLD_DI_SERINFOSIZE, paths) && !dlinfo(object, RTLD_DI_SERINFO, paths))
      for (unsigned int i = 0; i < paths->dls_cnt && !found; i++)
        found = !is_systems(paths->dls_serpath[i].dls_name) && try_folder(search, paths->dls_serpath[i].dls_name, "");
  }
  free(paths);
  dlclose(object);
  return found;
}

struct objects {
  char *paths[OBJECTS_MAX];
  int count;
};

static int collect(struct dl_phdr_info *info, size_t nbytes, void *into) {
  struct objects *objects = into;
  (void)nbytes;
  if (objects->count < OBJECTS_MAX && *info->dlpi_name == '/')
    objects->count += (objects->paths[objects->count] = strdup(info->dlpi_name)) != NULL;
  return 0;
}

/* The folders of Python packages in use: a loaded object, such as an extension module, lies some levels below one. */
static bool try_packages_in_use(const struct search *search) {
  struct objects *objects = calloc(1, sizeof *objects);
  bool found = false;
  if (!objects)
    return false;
  dl_iterate_phdr(collect, objects);
  for (int i = 0; i < objects->count; i++) {
    char *path = objects->paths[i];
    for (int level = 0; level <= PARENTS && !found && !is_systems(path); level++) {
      char *end = strrchr(path, '/');
      if (!end || end == path)
        break;
      *end = 0;
      found = try_packages(search, path);
    }
    free(path);
  }
  free(objects);
  return found;
}

/* The loader's cache holds absolute paths, each ended by a NUL. */
static bool try_loader_cache(const struct search *search) {
  int fd = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
  struct stat size;
  bool found = false;
  if (fd < 0)
    return false;
  if (!fstat(fd, &size) && size.st_size > 0 && size.st_size < CACHE_NBYTES_MAX) {
    const char *cache = mmap(NULL, (size_t)size.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (cache != MAP_FAILED) {
      const char *end = cache + size.st_size, *at = cache;
      while (!found && (at = memmem(at, (size_t)(end - at), search->name, strlen(search->name) + 1))) {
        const char *start = at;
        while (start > cache && start[-1])
          start--;
        found = *start == '/' && at[-1] == '/' && try_file(search, start);
        at++;
      }
      munmap((void *)cache, (size_t)size.st_size);
    }
  }
  close(fd);
  return found;
}

static bool find(const struct search *search) {
  return try_search_path_of(search, first_caller) || try_packages_in_use(search) ||
         try_list(search, "PYTHONPATH", try_packages) || try_list(search, "CONDA_PREFIX", try_toolkit) ||
         try_loader_cache(search) || try_list(search, "CUDA_PATH", try_toolkit) ||
         try_list(search, "CUDA_HOME", try_toolkit) || try_toolkit(search, "/usr/local/cuda") ||
         try_folder(search, "/usr/lib/x86_64-linux-gnu", "") || try_folder(search, "/usr/lib64", "");
}

static void open_library(void) {
  struct search search = {.name = ""};
  Dl_info own;
  if (dladdr(&library, &own))
    (void)!stat(own.dli_fname, &search.own);
  const char *named = secure_getenv(VGS_PATH_VARIABLE);
  if (named && *named) {
    if (!try_file(&search, named))
      vgs_log(VGS_LOG_REASON, "%s names %s, which cannot be opened", VGS_PATH_VARIABLE, named);
    return;
  }
  for (int i = 0; i < MAJORS && !library; i++) {
    snprintf(search.name, sizeof search.name, "%s%d", VGS_STEM, majors[i]);
    find(&search);
  }
  const char *fallback = secure_getenv(VGS_PATH_VARIABLE "_FALLBACK"); /* what `vgpu run` found */
  if (!library && fallback && *fallback)
    try_file(&search, fallback);
  if (library)
    vgs_log(VGS_LOG_INFO, "%s compiles; the simulated device is given PTX", library_path);
  else
    vgs_log(VGS_LOG_REASON, "NVIDIA's %s%s was not found: install it, or name the file in %s", VGS_STEM,
            TEXT(VGS_MAJOR), VGS_PATH_VARIABLE);
}

const char *vgs_real_path(void) { return library_path; }

void *vgs_real_function(const char *name, const void *caller) {
  const void *none = NULL;
  __atomic_compare_exchange_n(&first_caller, &none, caller, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  pthread_once(&once, open_library);
  void *function = library ? dlsym(library, name) : NULL;
  if (library && !function)
    vgs_log(VGS_LOG_REASON, "%s has no %s", library_path, name);
  return function;
}
