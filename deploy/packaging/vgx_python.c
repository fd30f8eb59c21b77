/* The bundle's Python: Debian's interpreter, linked statically, which finds all its files relative to its own path.
 *
 * It ignores PYTHON* variables, the user's site-packages and the machine's own Python. The commands that start it
 * therefore need not change the environment, and programs started by `vgpu run` inherit the user's environment.
 * sys.executable is this file, because workers are started with it.
 */

#include <Python.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define TEXT_(number) #number
#define TEXT(number) TEXT_(number)
#define LIBRARY "lib/python" TEXT(PY_MAJOR_VERSION) "." TEXT(PY_MINOR_VERSION)

/* libexpat's source of randomness. glibc has this function since 2.36; with this copy the bundle also runs on 2.35. */
__attribute__((visibility("hidden"))) void arc4random_buf(void *buffer, size_t nbytes) {
  char *next = buffer;
  while (nbytes) {
    ssize_t got = getrandom(next, nbytes, 0);
    if (got < 0 && errno != EINTR)
      abort(); /* as the C library's does: hash tables must not be predictable */
    if (got > 0) {
      next += got;
      nbytes -= (size_t)got;
    }
  }
}

#ifdef WITHOUT_EXPAT
/* Replaces the archive's module, because lintian takes that module's error texts for an embedded copy of expat. */
PyMODINIT_FUNC PyInit_pyexpat(void) {
  PyErr_SetString(PyExc_ImportError, "vgpud's Python parses no XML");
  return NULL;
}
#endif

/* The folder that contains bin/, lib/ and site/ is the parent of the executable's folder. */
static PyStatus add_path(PyConfig *config, const char *executable, const char *below) {
  char path[PATH_MAX];
  size_t length = strlen(executable);
  for (int level = 0; level < 2; level++)
    while (length && executable[--length] != '/')
      ;
  int written = snprintf(path, sizeof path, "%.*s/%s", (int)length, executable, below);
  if (written < 0 || (size_t)written >= sizeof path)
    return PyStatus_Error("the bundle's path is too long");
  wchar_t *wide = Py_DecodeLocale(path, NULL);
  if (!wide)
    return PyStatus_NoMemory();
  PyStatus status = PyWideStringList_Append(&config->module_search_paths, wide);
  PyMem_RawFree(wide);
  return status;
}

static PyStatus configure(PyConfig *config, int argc, char **argv, const char *executable) {
  static const char *const folders[] = {LIBRARY, LIBRARY "/lib-dynload", "site"};
  config->use_environment = 0;
  config->user_site_directory = 0;
  config->safe_path = 1;
  config->site_import = 0;
  config->write_bytecode = 0; /* byte code is shipped, and the folder may be another user's */
  config->module_search_paths_set = 1;
  PyStatus status = PyConfig_SetBytesString(config, &config->executable, executable);
  for (size_t i = 0; i < sizeof folders / sizeof *folders && !PyStatus_Exception(status); i++)
    status = add_path(config, executable, folders[i]);
  return PyStatus_Exception(status) ? status : PyConfig_SetBytesArgv(config, argc, argv);
}

int main(int argc, char **argv) {
  char executable[PATH_MAX];
  ssize_t nbytes = readlink("/proc/self/exe", executable, sizeof executable - 1);
  if (nbytes <= 0 || (size_t)nbytes >= sizeof executable - 1) {
    fputs("vgpu: /proc is not mounted, or the bundle's path is too long\n", stderr);
    return 1;
  }
  executable[nbytes] = 0;
  PyPreConfig early;
  PyPreConfig_InitPythonConfig(&early);
  early.use_environment = 0;
  early.utf8_mode = 1;       /* the locale may not exist on this machine */
  early.coerce_c_locale = 0; /* coercion would put LC_CTYPE into the environment of every program started */
  PyStatus status = Py_PreInitialize(&early);
  if (PyStatus_Exception(status))
    Py_ExitStatusException(status);
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  status = configure(&config, argc, argv, executable);
  if (!PyStatus_Exception(status))
    status = Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
  if (PyStatus_Exception(status))
    Py_ExitStatusException(status);
  return Py_RunMain();
}
