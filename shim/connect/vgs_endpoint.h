/* Where the daemon is. Order: VGPU_ENDPOINT, the guest's configuration file, the default socket, vsock behind a stub
 * GPU. */
#ifndef VGS_ENDPOINT_H
#define VGS_ENDPOINT_H

#include "vgw_cuda.h"
#include <stdbool.h>
#include <sys/socket.h>

enum { VGS_CONNECT_TIMEOUT_MS = 1000 };

struct vgs_endpoint {
  struct sockaddr_storage address;
  socklen_t address_nbytes;
  char host[254];       /* a name to resolve for each connection; "" where `address` is complete */
  uint16_t host_port;   /* goes with `host` */
  uint32_t hybrid_port; /* of a VM whose monitor answers at a unix address; 0: none */
  char text[256];       /* as configured, for the log */
  char token[256];      /* "" if none: VGPU_TOKEN or `token` in the configuration file */
  char region[256];     /* VGPU_SHARED_MEMORY or `shared_memory`: see vgs_region_look */
};

/* Whether vgpud is on this machine, so that it can be handed descriptors. */
static inline bool vgs_endpoint_is_local(const struct vgs_endpoint *endpoint) {
  return endpoint->address.ss_family == AF_UNIX && !endpoint->hybrid_port;
}

/* Find the endpoint without connecting.
 * Returns: 0; NO_DEVICE when nothing is configured; SYSTEM_NOT_READY when what is configured cannot be understood. */
CUresult vgs_endpoint_find(struct vgs_endpoint *endpoint);

/* Fill the address from a URL: unix:/PATH, tcp://HOST:PORT, vsock://CID:PORT, hybrid-vsock:/PATH:PORT (a port of the VM
 * whose monitor has that socket). protocol/data/endpoints.tsv tests this grammar and vgpu_guest/endpoint.py alike.
 * Returns: NULL, or why it is not an endpoint. */
const char *vgs_endpoint_parse(struct vgs_endpoint *endpoint, const char *url);

/* Connect; each address of a name has VGS_CONNECT_TIMEOUT_MS, and the resolver its own limits (resolv.conf). A failure
 * is logged. Returns: a blocking, close-on-exec socket, or -errno. */
int vgs_endpoint_connect(const struct vgs_endpoint *endpoint);

#endif
