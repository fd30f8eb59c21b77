#define _GNU_SOURCE
#include "vgs_endpoint.h"
#include "vgs_log.h"
#include "vgs_socket.h"
#include "vgs_stub.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static const char default_socket[] = "/run/vgpu/vgpud.sock";
static const char default_vsock[] = "vsock://2:7070"; /* CID 2 is the host of a virtual machine */
static const char default_config[] = "/etc/vgpu/guest.conf";

/* A decimal number that takes the whole text, at most `greatest`. */
static bool parse_number(const char *text, uint64_t greatest, uint64_t *value) {
  if (*text < '0' || *text > '9')
    return false;
  char *end;
  errno = 0;
  *value = strtoull(text, &end, 10);
  return !*end && !errno && *value <= greatest;
}

static int parse_tcp(struct vgs_endpoint *endpoint, const char *rest) {
  char host[64];
  const char *colon = strrchr(rest, ':');
  uint64_t port;
  if (!colon || !parse_number(colon + 1, 65535, &port) || !port)
    return -EINVAL;
  size_t nbytes = (size_t)(colon - rest);
  bool bracketed = nbytes > 2 && rest[0] == '[' && colon[-1] == ']';
  if (bracketed) {
    rest++;
    nbytes -= 2;
  }
  if (!nbytes || nbytes >= sizeof host)
    return -EINVAL;
  memcpy(host, rest, nbytes);
  host[nbytes] = 0;
  struct sockaddr_in *v4 = (struct sockaddr_in *)&endpoint->address;
  struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&endpoint->address;
  if (bracketed && inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)port);
    endpoint->address_nbytes = sizeof *v6;
    return 0;
  }
  if (bracketed || inet_pton(AF_INET, strcmp(host, "localhost") ? host : "127.0.0.1", &v4->sin_addr) != 1)
    return -EINVAL;
  v4->sin_family = AF_INET;
  v4->sin_port = htons((uint16_t)port);
  endpoint->address_nbytes = sizeof *v4;
  return 0;
}

static int parse_vsock(struct vgs_endpoint *endpoint, const char *rest) {
  char cid_text[16];
  const char *colon = strchr(rest, ':');
  uint64_t cid, port;
  if (!colon || (size_t)(colon - rest) >= sizeof cid_text)
    return -EINVAL;
  memcpy(cid_text, rest, (size_t)(colon - rest));
  cid_text[colon - rest] = 0;
  if (!parse_number(cid_text, UINT32_MAX, &cid) || !parse_number(colon + 1, UINT32_MAX, &port))
    return -EINVAL;
  struct sockaddr_vm *vm = (struct sockaddr_vm *)&endpoint->address;
  vm->svm_family = AF_VSOCK;
  vm->svm_cid = (unsigned)cid;
  vm->svm_port = (unsigned)port;
  endpoint->address_nbytes = sizeof *vm;
  return 0;
}

static int parse_unix(struct vgs_endpoint *endpoint, const char *path, size_t nbytes) {
  struct sockaddr_un *local = (struct sockaddr_un *)&endpoint->address;
  if (!nbytes || nbytes >= sizeof local->sun_path)
    return -EINVAL;
  local->sun_family = AF_UNIX;
  memcpy(local->sun_path, path, nbytes);
  endpoint->address_nbytes = sizeof *local;
  return 0;
}

static int parse_hybrid(struct vgs_endpoint *endpoint, const char *rest) {
  const char *colon = strrchr(rest, ':');
  uint64_t port;
  if (!colon || !parse_number(colon + 1, UINT32_MAX - 1, &port) || !port)
    return -EINVAL;
  endpoint->hybrid_port = (uint32_t)port;
  return parse_unix(endpoint, rest, (size_t)(colon - rest));
}

int vgs_endpoint_parse(struct vgs_endpoint *endpoint, const char *url) {
  memset(&endpoint->address, 0, sizeof endpoint->address);
  endpoint->hybrid_port = 0;
  snprintf(endpoint->text, sizeof endpoint->text, "%s", url);
  if (!strncmp(url, "tcp://", 6))
    return parse_tcp(endpoint, url + 6);
  if (!strncmp(url, "vsock://", 8))
    return parse_vsock(endpoint, url + 8);
  if (!strncmp(url, "hybrid-vsock:", 13))
    return parse_hybrid(endpoint, url + 13);
  if (strncmp(url, "unix:", 5))
    return -EINVAL;
  return parse_unix(endpoint, url + 5, strlen(url + 5));
}

/* Read a small file whole; the number of bytes, terminated by NUL, or -errno. */
static int read_file(const char *path, char *into, size_t capacity) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0)
    return -errno;
  size_t used = 0;
  ssize_t got;
  while (used < capacity - 1 && (got = read(fd, into + used, capacity - 1 - used)) != 0) {
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0) {
      int error = errno;
      close(fd);
      return -error;
    }
    used += (size_t)got;
  }
  close(fd);
  into[used] = 0;
  return (int)used;
}

/* `key = value` lines; `#` begins a comment line. Copies the values of the keys we know. */
static void read_config(const char *path, char url[256], struct vgs_endpoint *endpoint) {
  char text[8192], *rest = text, *line;
  if (read_file(path, text, sizeof text) < 0)
    return;
  while ((line = strsep(&rest, "\n"))) {
    char key[32], value[256];
    if (sscanf(line, " %31[a-z_] = %255s", key, value) != 2)
      continue;
    if (!strcmp(key, "endpoint"))
      snprintf(url, 256, "%s", value);
    else if (!strcmp(key, "token"))
      snprintf(endpoint->token, sizeof endpoint->token, "%s", value);
    else if (!strcmp(key, "shared_memory"))
      snprintf(endpoint->region, sizeof endpoint->region, "%s", value);
  }
}

CUresult vgs_endpoint_find(struct vgs_endpoint *endpoint) {
  char url[256] = "";
  memset(endpoint, 0, sizeof *endpoint);
  const char *config = secure_getenv("VGPU_GUEST_CONF");
  read_config(config ? config : default_config, url, endpoint);
  const char *token = secure_getenv("VGPU_TOKEN");
  if (token)
    snprintf(endpoint->token, sizeof endpoint->token, "%s", token);
  const char *region = secure_getenv("VGPU_SHARED_MEMORY");
  if (region)
    snprintf(endpoint->region, sizeof endpoint->region, "%s", region);
  const char *wanted = secure_getenv("VGPU_ENDPOINT");
  if (wanted && *wanted)
    snprintf(url, sizeof url, "%s", wanted);
  struct stat status;
  if (!*url && !stat(default_socket, &status) && S_ISSOCK(status.st_mode))
    snprintf(url, sizeof url, "unix:%s", default_socket);
  char stubs[VGS_STUB_MAX][VGS_STUB_ADDRESS_NBYTES];
  if (!*url && vgs_stub_find(stubs))
    snprintf(url, sizeof url, "%s", default_vsock);
  if (!*url) {
    vgs_log(VGS_LOG_INFO, "no endpoint: set VGPU_ENDPOINT or %s", default_config);
    return CUDA_ERROR_NO_DEVICE;
  }
  if (vgs_endpoint_parse(endpoint, url) < 0) {
    vgs_log(VGS_LOG_ERROR,
            "endpoint '%s' is none of unix:PATH, tcp://HOST:PORT, vsock://CID:PORT, hybrid-vsock:PATH:PORT", url);
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  return CUDA_SUCCESS;
}

/* One attempt; -EAGAIN from a unix socket means that its backlog is full. */
static int connect_once(int fd, const struct vgs_endpoint *endpoint, int64_t deadline_ms) {
  if (!connect(fd, (const struct sockaddr *)&endpoint->address, endpoint->address_nbytes))
    return 0;
  if (errno != EINPROGRESS && errno != EINTR)
    return -errno;
  int ready = vgs_socket_wait(fd, POLLOUT, deadline_ms);
  if (ready < 0)
    return ready;
  int error = 0;
  socklen_t nbytes = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &nbytes))
    return -errno;
  return -error;
}

/* Ask a VM's monitor for a port of the VM: it answers `OK` and a port of its own, or hangs up. Nothing behind that line
 * is read. 0 or -errno. */
static int ask_for_port(int fd, uint32_t port, int64_t deadline_ms) {
  char line[32];
  int nbytes = snprintf(line, sizeof line, "CONNECT %u\n", (unsigned)port);
  struct iovec iov = {.iov_base = line, .iov_len = (size_t)nbytes};
  int result = vgs_socket_send(fd, &iov, 1, -1);
  for (size_t used = 0; !result && used < sizeof line; used++) {
    result = vgs_socket_receive_all(fd, line + used, 1, deadline_ms);
    if (!result && line[used] == '\n')
      return strncmp(line, "OK ", 3) ? -EPROTO : 0;
  }
  return result == -ECONNRESET ? -ECONNREFUSED : result ? result : -EPROTO;
}

int vgs_endpoint_connect(const struct vgs_endpoint *endpoint) {
  int64_t deadline_ms = vgs_now_ms() + VGS_CONNECT_TIMEOUT_MS;
  int family = endpoint->address.ss_family;
  int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return -errno;
  int result;
  while ((result = connect_once(fd, endpoint, deadline_ms)) == -EAGAIN && vgs_now_ms() < deadline_ms)
    poll(NULL, 0, 10);
  if (!result && fcntl(fd, F_SETFL, 0)) /* blocking from now on: a waiting call sleeps in recv */
    result = -errno;
  if (!result && endpoint->hybrid_port)
    result = ask_for_port(fd, endpoint->hybrid_port, deadline_ms);
  if (result) {
    close(fd);
    return result;
  }
  if (family == AF_INET || family == AF_INET6) { /* a host that vanishes is noticed within half a minute */
    int on = 1, idle_s = 5, interval_s = 5, probes = 4;
    unsigned timeout_ms = 30000;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
  }
  return fd;
}
