#define _GNU_SOURCE
#include "vgs_endpoint.h"
#include "vgs_log.h"
#include "vgs_socket.h"
#include "vgs_stub.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <netdb.h>
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

enum { URL_NBYTES = 257 }; /* one more than the longest endpoint, so that longer text is refused instead of cut */

static const char bad_host[] = "the host is not a name, IPv4 address or IPv6 address in brackets";
static const char bad_tcp_port[] = "the port is not a number from 1 to 65535";
static const char bad_vsock_port[] = "the port is not a number from 1 to 4294967294";
static const char bad_cid[] = "the CID is not a number from 0 to 4294967294";

/* A decimal number of `nbytes` digits. */
static bool parse_number(const char *text, size_t nbytes, uint64_t least, uint64_t greatest, uint64_t *value) {
  if (!nbytes || nbytes > 10)
    return false;
  *value = 0;
  for (size_t i = 0; i < nbytes; i++) {
    if (text[i] < '0' || text[i] > '9')
      return false;
    *value = *value * 10 + (uint64_t)(text[i] - '0');
  }
  return *value >= least && *value <= greatest;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_name(const char *host, size_t nbytes) {
  for (size_t i = 0; i < nbytes; i++) {
    char c = host[i], lower = (char)(c | 0x20);
    if (!(is_digit(c) || (lower >= 'a' && lower <= 'z') || c == '_' || (i && (c == '.' || c == '-'))))
      return false;
  }
  return nbytes > 0;
}

/* Whether the last label begins with a digit: the resolver reads such a text as an address in some old form (127.1). */
static bool is_numeric(const char *host, size_t nbytes) {
  if (nbytes && host[nbytes - 1] == '.')
    nbytes--;
  size_t begin = nbytes;
  while (begin && host[begin - 1] != '.')
    begin--;
  return begin < nbytes && is_digit(host[begin]);
}

static const char *parse_tcp(struct vgs_endpoint *endpoint, const char *rest) {
  const char *colon = strrchr(rest, ':');
  uint64_t port;
  if (!colon || !parse_number(colon + 1, strlen(colon + 1), 1, 65535, &port))
    return bad_tcp_port;
  size_t nbytes = (size_t)(colon - rest);
  bool bracketed = nbytes >= 2 && rest[0] == '[' && colon[-1] == ']';
  if (bracketed) {
    rest++;
    nbytes -= 2;
  }
  if (nbytes >= sizeof endpoint->host || (!bracketed && !is_name(rest, nbytes)))
    return bad_host;
  memcpy(endpoint->host, rest, nbytes);
  endpoint->host[nbytes] = 0;
  endpoint->host_port = (uint16_t)port;
  if (!bracketed && !is_numeric(rest, nbytes) && strcmp(endpoint->host, "localhost") != 0)
    return NULL; /* resolved when it connects */
  struct sockaddr_in *v4 = (struct sockaddr_in *)&endpoint->address;
  struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&endpoint->address;
  const char *literal = strcmp(endpoint->host, "localhost") ? endpoint->host : "127.0.0.1";
  if (inet_pton(bracketed ? AF_INET6 : AF_INET, literal, bracketed ? (void *)&v6->sin6_addr : &v4->sin_addr) != 1)
    return bad_host;
  if (bracketed) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)port);
  } else {
    v4->sin_family = AF_INET;
    v4->sin_port = htons((uint16_t)port);
  }
  endpoint->address_nbytes = bracketed ? sizeof *v6 : sizeof *v4;
  endpoint->host[0] = 0;
  return NULL;
}

static const char *parse_vsock(struct vgs_endpoint *endpoint, const char *rest) {
  const char *colon = strrchr(rest, ':');
  uint64_t cid, port;
  if (!colon || !parse_number(colon + 1, strlen(colon + 1), 1, UINT32_MAX - 1, &port))
    return bad_vsock_port;
  if (!parse_number(rest, (size_t)(colon - rest), 0, UINT32_MAX - 1, &cid))
    return bad_cid;
  struct sockaddr_vm *vm = (struct sockaddr_vm *)&endpoint->address;
  vm->svm_family = AF_VSOCK;
  vm->svm_cid = (unsigned)cid;
  vm->svm_port = (unsigned)port;
  endpoint->address_nbytes = sizeof *vm;
  return NULL;
}

/* `reserved`: bytes that will be appended to this path. */
static const char *parse_unix(struct vgs_endpoint *endpoint, const char *path, size_t nbytes, size_t reserved) {
  struct sockaddr_un *local = (struct sockaddr_un *)&endpoint->address;
  if (!nbytes || path[0] != '/')
    return "the path is not absolute";
  if (nbytes + reserved >= sizeof local->sun_path)
    return "the path is longer than 107 bytes";
  local->sun_family = AF_UNIX;
  memcpy(local->sun_path, path, nbytes);
  endpoint->address_nbytes = sizeof *local;
  return NULL;
}

static const char *parse_hybrid(struct vgs_endpoint *endpoint, const char *rest) {
  const char *colon = strrchr(rest, ':');
  uint64_t port;
  if (!colon || !parse_number(colon + 1, strlen(colon + 1), 1, UINT32_MAX - 1, &port))
    return bad_vsock_port;
  char listener[16]; /* the host listens at the socket PATH_PORT */
  int reserved = snprintf(listener, sizeof listener, "_%u", (unsigned)port);
  endpoint->hybrid_port = (uint32_t)port;
  return parse_unix(endpoint, rest, (size_t)(colon - rest), (size_t)reserved);
}

const char *vgs_endpoint_parse(struct vgs_endpoint *endpoint, const char *url) {
  memset(&endpoint->address, 0, sizeof endpoint->address);
  endpoint->hybrid_port = 0;
  endpoint->host[0] = 0;
  snprintf(endpoint->text, sizeof endpoint->text, "%s", url);
  if (strlen(url) >= sizeof endpoint->text)
    return "it is longer than 255 bytes";
  for (const char *c = url; *c; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f)
      return "it has control characters";
  if (!strncmp(url, "unix:", 5)) {
    const char *path = strncmp(url + 5, "//", 2) ? url + 5 : url + 7;
    return parse_unix(endpoint, path, strlen(path), 0);
  }
  if (!strncmp(url, "hybrid-vsock:", 13))
    return parse_hybrid(endpoint, url + 13);
  if (!strncmp(url, "tcp://", 6))
    return parse_tcp(endpoint, url + 6);
  if (!strncmp(url, "vsock://", 8))
    return parse_vsock(endpoint, url + 8);
  return "it is none of unix:/PATH, tcp://HOST:PORT, vsock://CID:PORT, hybrid-vsock:/PATH:PORT";
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
static void read_config(const char *path, char url[URL_NBYTES], struct vgs_endpoint *endpoint) {
  char text[8192], *rest = text, *line;
  int result = read_file(path, text, sizeof text);
  if (result < 0 && result != -ENOENT)
    vgs_log(VGS_LOG_REASON, "%s cannot be read: %s", path, strerror(-result));
  if (result < 0)
    return;
  while ((line = strsep(&rest, "\n"))) {
    char key[32], value[URL_NBYTES];
    if (sscanf(line, " %31[a-z_] = %256s", key, value) != 2)
      continue;
    if (!strcmp(key, "endpoint"))
      snprintf(url, URL_NBYTES, "%s", value);
    else if (!strcmp(key, "token"))
      snprintf(endpoint->token, sizeof endpoint->token, "%.255s", value);
    else if (!strcmp(key, "shared_memory"))
      snprintf(endpoint->region, sizeof endpoint->region, "%.255s", value);
  }
}

CUresult vgs_endpoint_find(struct vgs_endpoint *endpoint) {
  char url[URL_NBYTES] = "";
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
  const char *why = vgs_endpoint_parse(endpoint, url);
  if (why) {
    vgs_log(VGS_LOG_REASON, "endpoint '%s': %s", url, why);
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  return CUDA_SUCCESS;
}

/* One attempt; -EAGAIN from a unix socket means that its backlog is full. */
static int connect_once(int fd, const struct sockaddr *address, socklen_t nbytes, int64_t deadline_ms) {
  if (!connect(fd, address, nbytes))
    return 0;
  if (errno != EINPROGRESS && errno != EINTR)
    return -errno;
  int ready = vgs_socket_wait(fd, POLLOUT, deadline_ms);
  if (ready < 0)
    return ready;
  int error = 0;
  socklen_t error_nbytes = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_nbytes))
    return -errno;
  return -error;
}

/* Ask a VM's monitor for a port of the VM: it answers `OK` and a port of its own, or hangs up. Nothing after that line
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

/* Connect to one address. `port`: the VM's port to request from its monitor, or 0. */
static int connect_to(const struct sockaddr *address, socklen_t nbytes, uint32_t port) {
  int64_t deadline_ms = vgs_now_ms() + VGS_CONNECT_TIMEOUT_MS;
  int family = address->sa_family;
  int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return -errno;
  int result;
  while ((result = connect_once(fd, address, nbytes, deadline_ms)) == -EAGAIN && vgs_now_ms() < deadline_ms)
    poll(NULL, 0, 10);
  if (!result && fcntl(fd, F_SETFL, 0)) /* blocking from now on: a waiting call sleeps in recv */
    result = -errno;
  if (!result && port)
    result = ask_for_port(fd, port, deadline_ms);
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

/* Connect to the first address of the host's name that answers. */
static int connect_to_host(const struct vgs_endpoint *endpoint, const char **why) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV}, *found = NULL;
  char port[8];
  snprintf(port, sizeof port, "%u", (unsigned)endpoint->host_port);
  int error = getaddrinfo(endpoint->host, port, &hints, &found);
  if (error) {
    *why = error == EAI_SYSTEM ? NULL : gai_strerror(error);
    return error == EAI_SYSTEM ? -errno : -EHOSTUNREACH;
  }
  int result = -EADDRNOTAVAIL;
  for (struct addrinfo *each = found; each && result < 0; each = each->ai_next)
    result = connect_to(each->ai_addr, each->ai_addrlen, 0);
  freeaddrinfo(found);
  return result;
}

int vgs_endpoint_connect(const struct vgs_endpoint *endpoint) {
  const char *why = NULL;
  int fd = *endpoint->host ? connect_to_host(endpoint, &why)
                           : connect_to((const struct sockaddr *)&endpoint->address, endpoint->address_nbytes,
                                        endpoint->hybrid_port);
  if (fd < 0)
    vgs_log(VGS_LOG_REASON, "cannot reach the daemon at %s: %s", endpoint->text, why ? why : strerror(-fd));
  return fd;
}
