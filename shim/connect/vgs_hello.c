#define _GNU_SOURCE
#include "vgs_hello.h"
#include "vgs_log.h"
#include "vgs_socket.h"
#include "vgs_stub.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { FRAME_MAX = 4 << 20 }; /* wire.md: a frame from the host */
enum { BUSY_CHECK_MS = 50 };

/* vgpud makes this file beside its socket when it is about to be replaced; an older file was left by a crash. */
#define VGS_RESTARTING ".restarting"
enum { RESTART_MAX_S = 60 };

CUresult vgs_frame_send(int fd, const uint8_t *body, uint32_t nbytes) {
  uint32_t length = nbytes;
  struct iovec iov[] = {{&length, sizeof length}, {(void *)body, nbytes}};
  int error = vgs_socket_send(fd, iov, 2, -1);
  if (error)
    vgs_log(VGS_LOG_ERROR, "daemon: %s while sending", strerror(-error));
  return error ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_SUCCESS;
}

/* Receive one frame into a buffer of its own. */
CUresult vgs_frame_receive(int fd, uint8_t **body, uint32_t *nbytes, int64_t deadline_ms) {
  uint32_t length;
  *body = NULL;
  int error = vgs_socket_receive_all(fd, &length, sizeof length, deadline_ms);
  if (!error && (!length || length > FRAME_MAX)) {
    vgs_log(VGS_LOG_REASON, "daemon: a frame of %u bytes: not vgpu's protocol", length);
    return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  }
  if (!error && !(*body = malloc(length)))
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (!error)
    error = vgs_socket_receive_all(fd, *body, length, deadline_ms);
  if (error) {
    vgs_log(VGS_LOG_REASON, "daemon: %s while waiting for its answer", strerror(-error));
    free(*body);
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  *nbytes = length;
  return CUDA_SUCCESS;
}

/* Whether the map has `type` equal to `wanted`. A refusal is logged and its code returned; anything else
 * violates the protocol. */
CUresult vgs_frame_check(const uint8_t *body, uint32_t body_nbytes, const char *wanted) {
  struct vgs_unpacker unpacker = {.next = body, .end = body + body_nbytes};
  char type[32] = "", reason[256] = "no reason given";
  int64_t code = CUDA_ERROR_UNKNOWN;
  for (uint32_t left = vgs_unpack_map(&unpacker); left && !unpacker.failed; left--) {
    uint32_t nbytes;
    const char *key = vgs_unpack_str(&unpacker, &nbytes);
    if (vgs_str_is(key, nbytes, "type"))
      vgs_unpack_text(&unpacker, type, sizeof type);
    else if (vgs_str_is(key, nbytes, "code"))
      code = vgs_unpack_int(&unpacker, 1, 999);
    else if (vgs_str_is(key, nbytes, "reason"))
      vgs_unpack_text(&unpacker, reason, sizeof reason);
    else
      vgs_unpack_skip(&unpacker);
  }
  if (!unpacker.failed && !strcmp(type, wanted))
    return CUDA_SUCCESS;
  if (!unpacker.failed && !strcmp(type, "refused")) {
    vgs_log(VGS_LOG_REASON, "daemon refused: %s (%d)", reason, (int)code);
    return (CUresult)code;
  }
  vgs_log(VGS_LOG_REASON, "daemon: expected '%s', got something else: not vgpu's protocol or version", wanted);
  return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
}

static CUresult send_hello(int fd, const struct vgs_endpoint *endpoint, const char *library, bool region) {
  uint8_t body[2048];
  char comm[64];
  size_t used = 0;
  for (const char *c = program_invocation_short_name; *c && used < sizeof comm - 1; c++)
    comm[used++] = *c >= ' ' && *c <= '~' ? *c : '?'; /* msgpack strings are UTF-8; a program's name need not be */
  comm[used] = 0;
  struct vgs_packer packer = {.next = body, .end = body + sizeof body};
  bool local = vgs_endpoint_is_local(endpoint);
  char stubs[VGS_STUB_MAX][VGS_STUB_ADDRESS_NBYTES];
  /* a local daemon already knows this machine's PCI addresses */
  uint32_t stub_count = local ? 0 : vgs_stub_find(stubs);
  bool has_token = *endpoint->token;
  vgs_pack_map(&packer, 4 + (has_token ? 1 : 0) + (stub_count ? 1 : 0));
  vgs_pack_str(&packer, "type");
  vgs_pack_str(&packer, "hello");
  vgs_pack_str(&packer, "versions");
  vgs_pack_array(&packer, 2);
  vgs_pack_int(&packer, VGS_PROTOCOL_VERSION);
  vgs_pack_int(&packer, VGS_PROTOCOL_VERSION);
  vgs_pack_str(&packer, "features");
  vgs_pack_array(&packer, 4 + (local ? 2 : 0) + (region ? 1 : 0));
  vgs_pack_str(&packer, "images");
  vgs_pack_str(&packer, "progress");
  vgs_pack_str(&packer, "activity");
  vgs_pack_str(&packer, "quotas");
  if (local) {
    vgs_pack_str(&packer, "pinned-fd");
    vgs_pack_str(&packer, "ring");
  }
  if (region)
    vgs_pack_str(&packer, "region");
  vgs_pack_str(&packer, "client");
  vgs_pack_map(&packer, 3);
  vgs_pack_str(&packer, "pid");
  vgs_pack_int(&packer, getpid());
  vgs_pack_str(&packer, "comm");
  vgs_pack_str(&packer, comm);
  vgs_pack_str(&packer, "library");
  vgs_pack_str(&packer, library);
  if (has_token) {
    vgs_pack_str(&packer, "token");
    vgs_pack_str(&packer, endpoint->token);
  }
  if (stub_count) {
    vgs_pack_str(&packer, "pci");
    vgs_pack_array(&packer, stub_count);
    for (uint32_t i = 0; i < stub_count; i++)
      vgs_pack_str(&packer, stubs[i]);
  }
  if (packer.failed)
    return CUDA_ERROR_UNKNOWN;
  /* Send it in one piece, so that a peer that answers the first bytes it reads, and closes, has read all of it. */
  uint32_t nbytes = (uint32_t)(packer.next - body);
  struct iovec parts[] = {{(void *)"VGPU", 4}, {&nbytes, sizeof nbytes}, {body, nbytes}};
  return vgs_socket_send(fd, parts, 3, -1) ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_SUCCESS;
}

static void unpack_caps(struct vgs_unpacker *unpacker, struct vgs_welcome *welcome) {
  for (uint32_t left = vgs_unpack_map(unpacker); left && !unpacker->failed; left--) {
    uint32_t nbytes;
    const char *key = vgs_unpack_str(unpacker, &nbytes);
    if (vgs_str_is(key, nbytes, "record_nbytes"))
      welcome->record_nbytes = (uint32_t)vgs_unpack_int(unpacker, 4096, FRAME_MAX);
    else
      vgs_unpack_skip(unpacker);
  }
}

/* {cookie: bin 16, nbytes: int} */
static void unpack_region(struct vgs_unpacker *unpacker, struct vgs_welcome *welcome) {
  for (uint32_t left = vgs_unpack_map(unpacker); left && !unpacker->failed; left--) {
    uint32_t nbytes;
    const char *key = vgs_unpack_str(unpacker, &nbytes);
    if (vgs_str_is(key, nbytes, "cookie")) {
      const uint8_t *cookie = vgs_unpack_bin(unpacker, &nbytes);
      if (cookie && nbytes == sizeof welcome->region_cookie)
        memcpy(welcome->region_cookie, cookie, nbytes);
      else
        unpacker->failed = true;
    } else if (vgs_str_is(key, nbytes, "nbytes"))
      welcome->region_nbytes = (uint64_t)vgs_unpack_int(unpacker, 0, INT64_MAX);
    else
      vgs_unpack_skip(unpacker);
  }
}

static CUresult unpack_welcome(const uint8_t *body, uint32_t body_nbytes, struct vgs_welcome *welcome) {
  struct vgs_unpacker unpacker = {.next = body, .end = body + body_nbytes};
  int64_t version = 0;
  for (uint32_t left = vgs_unpack_map(&unpacker); left && !unpacker.failed; left--) {
    uint32_t nbytes;
    const char *key = vgs_unpack_str(&unpacker, &nbytes);
    if (vgs_str_is(key, nbytes, "version"))
      version = vgs_unpack_int(&unpacker, 0, INT32_MAX);
    else if (vgs_str_is(key, nbytes, "epoch"))
      welcome->epoch = (uint16_t)vgs_unpack_int(&unpacker, 1, 65535);
    else if (vgs_str_is(key, nbytes, "caps"))
      unpack_caps(&unpacker, welcome);
    else if (vgs_str_is(key, nbytes, "features")) {
      for (uint32_t items = vgs_unpack_array(&unpacker); items && !unpacker.failed; items--) {
        const char *feature = vgs_unpack_str(&unpacker, &nbytes);
        welcome->pinned_fd |= vgs_str_is(feature, nbytes, "pinned-fd");
        welcome->ring |= vgs_str_is(feature, nbytes, "ring");
        welcome->images |= vgs_str_is(feature, nbytes, "images");
        welcome->activity |= vgs_str_is(feature, nbytes, "activity");
        welcome->limited |= vgs_str_is(feature, nbytes, "quotas");
        welcome->region |= vgs_str_is(feature, nbytes, "region");
      }
    } else if (vgs_str_is(key, nbytes, "region"))
      unpack_region(&unpacker, welcome);
    else if (vgs_str_is(key, nbytes, "inventory") && !welcome->inventory.devices)
      vgs_inventory_init(&welcome->inventory, &unpacker);
    else
      vgs_unpack_skip(&unpacker);
  }
  if (!unpacker.failed && version == VGS_PROTOCOL_VERSION && welcome->epoch && welcome->record_nbytes &&
      welcome->inventory.devices)
    return CUDA_SUCCESS;
  vgs_log(VGS_LOG_REASON, "daemon: its welcome is not of protocol version %d, or incomplete", VGS_PROTOCOL_VERSION);
  vgs_inventory_fini(&welcome->inventory);
  return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
}

/* Whether process 1, the service manager, is listening on the socket, so that it starts vgpud for this client. Once
 * vgpud serves, it calls listen itself and becomes the peer. */
static bool is_being_started(int fd) {
  struct ucred peer;
  socklen_t nbytes = sizeof peer;
  return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &nbytes) && peer.pid == 1 && peer.uid == 0;
}

/* Whether the peer of a unix socket is overloaded, as when hundreds of programs start at once: its process is runnable,
 * or waits for a disk. A process that hangs, or is stopped, is not overloaded. False where its state cannot be read: on
 * another machine or in another pid namespace. */
static bool is_overloaded(int fd) {
  struct ucred peer;
  socklen_t size = sizeof peer;
  char path[32], stat[512];
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) || peer.pid <= 0)
    return false;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)peer.pid);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t nbytes = file < 0 ? -1 : read(file, stat, sizeof stat - 1);
  if (file >= 0)
    close(file);
  if (nbytes <= 0)
    return false;
  stat[nbytes] = 0;
  const char *after = strrchr(stat, ')'); /* a process name may contain any bytes */
  return after && after[1] == ' ' && (after[2] == 'R' || after[2] == 'D');
}

/* Whether vgpud is being replaced, which a file beside its socket announces. */
static bool is_being_replaced(const struct vgs_endpoint *endpoint) {
  const struct sockaddr_un *address = (const struct sockaddr_un *)&endpoint->address;
  char path[sizeof address->sun_path + sizeof VGS_RESTARTING];
  struct stat file;
  if (address->sun_family != AF_UNIX || !*address->sun_path)
    return false;
  snprintf(path, sizeof path, "%.*s%s", (int)sizeof address->sun_path, address->sun_path, VGS_RESTARTING);
  return !lstat(path, &file) && time(NULL) - file.st_mtime < RESTART_MAX_S;
}

/* The deadline for the welcome: its timeout starts again whenever the host is seen to be overloaded or being replaced.
 */
static int64_t welcome_deadline_ms(int fd, const struct vgs_endpoint *endpoint) {
  int64_t now_ms = vgs_now_ms(), last_ms = now_ms + VGS_OVERLOAD_TIMEOUT_MS;
  struct pollfd answer = {.fd = fd, .events = POLLIN};
  if (is_being_started(fd))
    return now_ms + VGS_START_TIMEOUT_MS;
  int64_t deadline_ms = now_ms + VGS_WELCOME_TIMEOUT_MS;
  while (now_ms < last_ms && poll(&answer, 1, BUSY_CHECK_MS) == 0 && (now_ms = vgs_now_ms()) < deadline_ms)
    if (is_overloaded(fd) || is_being_replaced(endpoint))
      deadline_ms = now_ms + VGS_WELCOME_TIMEOUT_MS;
  return deadline_ms;
}

CUresult vgs_hello(int fd, const struct vgs_endpoint *endpoint, const char *library, bool region,
                   struct vgs_welcome *welcome) {
  uint8_t *body;
  uint32_t nbytes;
  memset(welcome, 0, sizeof *welcome);
  CUresult sent = send_hello(fd, endpoint, library, region);
  if (sent && sent != CUDA_ERROR_SYSTEM_NOT_READY)
    return sent;
  /* A host that refuses all clients closes without reading, so sending fails, but its reason may have arrived. */
  CUresult result = vgs_frame_receive(fd, &body, &nbytes, welcome_deadline_ms(fd, endpoint));
  if (result)
    return result;
  result = vgs_frame_check(body, nbytes, "welcome");
  if (!result)
    result = unpack_welcome(body, nbytes, welcome);
  free(body);
  return result;
}

int vgs_attach_device = -1;

/* {type: "attached", worker, region: [offset, nbytes] or nil} */
static CUresult unpack_attached(const uint8_t *body, uint32_t body_nbytes, struct vgs_attached *attached) {
  struct vgs_unpacker unpacker = {.next = body, .end = body + body_nbytes};
  for (uint32_t left = vgs_unpack_map(&unpacker); left && !unpacker.failed; left--) {
    uint32_t nbytes;
    const char *key = vgs_unpack_str(&unpacker, &nbytes);
    if (vgs_str_is(key, nbytes, "region") && unpacker.next < unpacker.end && *unpacker.next != 0xc0) {
      attached->region = vgs_unpack_array(&unpacker) == 2;
      attached->offset = (uint64_t)vgs_unpack_int(&unpacker, 0, INT64_MAX);
      attached->nbytes = (uint64_t)vgs_unpack_int(&unpacker, 0, INT64_MAX);
      unpacker.failed |= !attached->region;
    } else
      vgs_unpack_skip(&unpacker);
  }
  return unpacker.failed ? CUDA_ERROR_SYSTEM_DRIVER_MISMATCH : CUDA_SUCCESS;
}

CUresult vgs_attach(int fd, bool region, struct vgs_attached *attached) {
  int64_t deadline_ms = vgs_now_ms() + VGS_ATTACH_TIMEOUT_MS;
  uint8_t request[64], *body;
  uint32_t nbytes;
  memset(attached, 0, sizeof *attached);
  struct vgs_packer packer = {.next = request, .end = request + sizeof request};
  int device = __atomic_load_n(&vgs_attach_device, __ATOMIC_RELAXED);
  vgs_pack_map(&packer, 1 + (device >= 0 ? 1 : 0) + (region ? 1 : 0));
  vgs_pack_str(&packer, "type");
  vgs_pack_str(&packer, "attach");
  if (device >= 0) {
    vgs_pack_str(&packer, "device");
    vgs_pack_int(&packer, device);
  }
  if (region) {
    vgs_pack_str(&packer, "region");
    vgs_pack_int(&packer, 1);
  }
  CUresult result = vgs_frame_send(fd, request, (uint32_t)(packer.next - request));
  if (result)
    return result;
  if ((result = vgs_frame_receive(fd, &body, &nbytes, deadline_ms)))
    return result;
  result = vgs_frame_check(body, nbytes, "attached");
  if (!result)
    result = unpack_attached(body, nbytes, attached);
  free(body);
  return result;
}
