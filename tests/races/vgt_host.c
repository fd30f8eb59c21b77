#define _GNU_SOURCE
#include "vgt_host.h"
#include "vgs_hello.h"
#include "vgs_msgpack.h"
#include "vgx_backend.h"
#include "vgx_serve.h"
#include "vgx_sim.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { ATTRIBUTES = 148, LIMITS = 4, MAPPINGS = 4096, PROCESSORS = 8 };

void vgt_install(void);

static struct vgx_backend backend;
static int serving, slow; /* atomic */

static void must(bool true_now, const char *what) {
  if (!true_now) {
    perror(what);
    abort();
  }
}

/* --- one mapping for both sides: -Wl,--wrap=mmap,--wrap=munmap --- */

void *__real_mmap(void *address, size_t nbytes, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *address, size_t nbytes);
void *__wrap_mmap(void *address, size_t nbytes, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *address, size_t nbytes);

static pthread_mutex_t mappings_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  ino_t inode;
  void *address;
  unsigned users;
} mappings[MAPPINGS];

void *__wrap_mmap(void *address, size_t nbytes, int protection, int flags, int fd, off_t offset) {
  struct stat st;
  if (fd < 0 || !(flags & MAP_SHARED) || offset || fstat(fd, &st))
    return __real_mmap(address, nbytes, protection, flags, fd, offset);
  void *mapped = MAP_FAILED;
  int free_place = -1;
  pthread_mutex_lock(&mappings_lock);
  for (int i = 0; i < MAPPINGS && mapped == MAP_FAILED; i++)
    if (!mappings[i].users) {
      free_place = free_place < 0 ? i : free_place;
    } else if (mappings[i].inode == st.st_ino) {
      must(!address || address == mappings[i].address, "both sides at one address");
      mappings[i].users++;
      mapped = mappings[i].address;
    }
  if (mapped == MAP_FAILED) {
    must(free_place >= 0, "mappings");
    mapped = __real_mmap(address, nbytes, protection, flags, fd, offset);
    mappings[free_place].inode = st.st_ino;
    mappings[free_place].address = mapped;
    mappings[free_place].users = mapped != MAP_FAILED;
  }
  pthread_mutex_unlock(&mappings_lock);
  return mapped;
}

int __wrap_munmap(void *address, size_t nbytes) {
  bool last = true;
  pthread_mutex_lock(&mappings_lock);
  for (int i = 0; i < MAPPINGS; i++)
    if (mappings[i].users && mappings[i].address == address)
      last = !--mappings[i].users;
  pthread_mutex_unlock(&mappings_lock);
  return last ? __real_munmap(address, nbytes) : 0;
}

/* Spinning, flags and copying threads are used only on machines with several processors: report that many. */
long __real_sysconf(int name);
long __wrap_sysconf(int name);
long __wrap_sysconf(int name) { return name == _SC_NPROCESSORS_ONLN ? PROCESSORS : __real_sysconf(name); }

/* --- the control phase --- */

static const int32_t attributes_of_h100[][2] = {
    {1, 1024}, {2, 1024},  {3, 1024}, {4, 64},     {5, INT32_MAX}, {6, 65535},  {7, 65535}, {8, 49152}, {10, 32},
    {16, 132}, {39, 2048}, {75, 9},   {81, 49152}, {95, 1},        {97, 49152}, {106, 32},  {111, 1024}};

static void fill_attributes(int32_t *attributes, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    attributes[i] = INT32_MIN;
  for (size_t i = 0; i < sizeof attributes_of_h100 / sizeof attributes_of_h100[0]; i++)
    attributes[attributes_of_h100[i][0]] = attributes_of_h100[i][1];
  attributes[76] = 0;
}

static void pack_bin(struct vgs_packer *packer, const void *data, uint32_t nbytes) {
  must((size_t)(packer->end - packer->next) > nbytes + 5, "room in the welcome");
  *packer->next++ = 0xc6;
  for (int shift = 24; shift >= 0; shift -= 8)
    *packer->next++ = (uint8_t)(nbytes >> shift);
  memcpy(packer->next, data, nbytes);
  packer->next += nbytes;
}

static void pack_device(struct vgs_packer *packer) {
  int32_t attributes[ATTRIBUTES];
  uint64_t limits[LIMITS] = {1024, 4096, 8 << 20, UINT64_MAX};
  fill_attributes(attributes, ATTRIBUTES);
  vgs_pack_map(packer, 8);
  vgs_pack_str(packer, "name");
  vgs_pack_str(packer, "VGT");
  vgs_pack_str(packer, "uuid");
  pack_bin(packer, "0123456789abcdef", 16);
  vgs_pack_str(packer, "pci");
  vgs_pack_str(packer, "0000:00:06.0");
  vgs_pack_str(packer, "memory_nbytes");
  vgs_pack_int(packer, 4ll << 30);
  vgs_pack_str(packer, "attributes");
  pack_bin(packer, attributes, sizeof attributes);
  vgs_pack_str(packer, "limits");
  pack_bin(packer, limits, sizeof limits);
  vgs_pack_str(packer, "priorities");
  vgs_pack_array(packer, 2);
  vgs_pack_int(packer, 0);
  vgs_pack_int(packer, -5);
  vgs_pack_str(packer, "granularity");
  vgs_pack_array(packer, 2);
  vgs_pack_int(packer, 2 << 20);
  vgs_pack_int(packer, 2 << 20);
}

/* False: the client has gone, because it waits for an answer only for a limited time. */
static bool send_welcome(int fd, int64_t epoch) {
  uint8_t body[4096];
  struct vgs_packer packer = {.next = body, .end = body + sizeof body};
  vgs_pack_map(&packer, 6);
  vgs_pack_str(&packer, "type");
  vgs_pack_str(&packer, "welcome");
  vgs_pack_str(&packer, "version");
  vgs_pack_int(&packer, 1);
  vgs_pack_str(&packer, "features");
  vgs_pack_array(&packer, 2);
  vgs_pack_str(&packer, "pinned-fd");
  vgs_pack_str(&packer, "ring");
  vgs_pack_str(&packer, "epoch");
  vgs_pack_int(&packer, epoch);
  vgs_pack_str(&packer, "caps");
  vgs_pack_map(&packer, 1);
  vgs_pack_str(&packer, "record_nbytes");
  vgs_pack_int(&packer, 4 << 20);
  vgs_pack_str(&packer, "inventory");
  vgs_pack_map(&packer, 4);
  vgs_pack_str(&packer, "driver_version");
  vgs_pack_int(&packer, 13000);
  vgs_pack_str(&packer, "driver_release");
  vgs_pack_str(&packer, "580.159.04");
  vgs_pack_str(&packer, "backend");
  vgs_pack_str(&packer, "simulator");
  vgs_pack_str(&packer, "devices");
  vgs_pack_array(&packer, 1);
  pack_device(&packer);
  must(!packer.failed, "welcome");
  return !vgs_frame_send(fd, body, (uint32_t)(packer.next - body));
}

static bool receive_frame(int fd) {
  uint32_t nbytes;
  uint8_t body[4096];
  return recv(fd, &nbytes, sizeof nbytes, MSG_WAITALL) == sizeof nbytes && nbytes <= sizeof body &&
         recv(fd, body, nbytes, MSG_WAITALL) == (ssize_t)nbytes;
}

static bool send_attached(int fd) {
  uint8_t body[64];
  struct vgs_packer packer = {.next = body, .end = body + sizeof body};
  vgs_pack_map(&packer, 2);
  vgs_pack_str(&packer, "type");
  vgs_pack_str(&packer, "attached");
  vgs_pack_str(&packer, "worker");
  vgs_pack_int(&packer, 1);
  return !vgs_frame_send(fd, body, (uint32_t)(packer.next - body));
}

/* --- the worker --- */

static CUresult (*copy_at_once)(CUdeviceptr, const void *, size_t, CUstream);

static CUresult copy_in_its_time(CUdeviceptr dst, const void *src, size_t nbytes, CUstream stream) {
  if (__atomic_load_n(&slow, __ATOMIC_RELAXED))
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  return copy_at_once(dst, src, nbytes, stream);
}

/* A real worker's threads end with its process; here all work must have ended before the next session begins. */
static void clear_up(void) {
  CUcontext context;
  must(!backend.cuDevicePrimaryCtxRetain(&context, 0) && !backend.cuCtxSetCurrent(context), "context");
  backend.cuCtxSynchronize();
  backend.cuDevicePrimaryCtxReset_v2(0);
}

static void serve(int fd, int64_t epoch) {
  char magic[4];
  if (recv(fd, magic, sizeof magic, MSG_WAITALL) != sizeof magic || !receive_frame(fd))
    return;
  if (!send_welcome(fd, epoch) || !receive_frame(fd) || !send_attached(fd))
    return; /* the client never attached */
  struct vgx_serve_options options = {
      .backend = &backend, .features = VGX_FEATURE_PINNED_FD | VGX_FEATURE_RING, .spin_us = 20};
  __atomic_store_n(&serving, 1, __ATOMIC_RELEASE);
  vgx_serve(fd, &options);
  __atomic_store_n(&serving, 0, __ATOMIC_RELEASE);
  clear_up();
}

static void *host(void *listener) {
  for (int64_t epoch = 1;; epoch++) {
    int fd = accept((int)(intptr_t)listener, NULL, NULL);
    must(fd >= 0, "accept");
    serve(fd, epoch);
    close(fd);
  }
  return NULL;
}

void vgt_host_start(void) {
  static char url[128];
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const char *folder = getenv("TMPDIR"); /* the test's, which removes the socket with it */
  snprintf(address.sun_path, sizeof address.sun_path, "%s/vgt-races-%d.sock", folder ? folder : "/tmp", getpid());
  snprintf(url, sizeof url, "unix:%s", address.sun_path);
  unlink(address.sun_path);
  int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  must(!bind(listener, (struct sockaddr *)&address, sizeof address) && !listen(listener, 8), address.sun_path);
  setenv("VGPU_ENDPOINT", url, 1);
  static struct vgx_sim_device_properties properties = {.memory_nbytes = 4ull << 30, .context_nbytes = 1 << 20};
  properties.priority_greatest = -5;
  fill_attributes(properties.attributes, VGX_SIM_ATTRIBUTES_MAX);
  for (int i = 0; i < (int)VGX_SIM_LIMITS_MAX; i++)
    properties.limits[i] = i < LIMITS - 1 ? (uint64_t[]){1024, 4096, 8 << 20}[i] : UINT64_MAX;
  must(!vgx_sim_configure(0, &properties), "simulator");
  vgx_sim_set_threads(2);
  vgt_install();
  backend = *vgx_sim_backend();
  copy_at_once = backend.cuMemcpyHtoDAsync_v2;
  backend.cuMemcpyHtoDAsync_v2 = copy_in_its_time;
  pthread_t thread;
  must(!pthread_create(&thread, NULL, host, (void *)(intptr_t)listener), "thread");
  pthread_detach(thread);
}

void vgt_host_kill_worker(void) {
  while (!__atomic_load_n(&serving, __ATOMIC_ACQUIRE))
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  vgx_stop();
}

void vgt_host_slow_down(bool now) { __atomic_store_n(&slow, now, __ATOMIC_RELAXED); }
