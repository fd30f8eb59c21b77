/* Prints how the libraries parse each line of stdin as an endpoint, in the form of protocol/data/endpoints.tsv. */
#include "vgs_endpoint.h"
#include <arpa/inet.h>
#include <linux/vm_sockets.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

static void print(const struct vgs_endpoint *endpoint) {
  const struct sockaddr_un *local = (const void *)&endpoint->address;
  const struct sockaddr_in *v4 = (const void *)&endpoint->address;
  const struct sockaddr_in6 *v6 = (const void *)&endpoint->address;
  const struct sockaddr_vm *vm = (const void *)&endpoint->address;
  char text[INET6_ADDRSTRLEN];
  if (*endpoint->host)
    printf("tcp name %s %u\n", endpoint->host, (unsigned)endpoint->host_port);
  else if (endpoint->address.ss_family == AF_INET)
    printf("tcp %s %u\n", inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text), (unsigned)ntohs(v4->sin_port));
  else if (endpoint->address.ss_family == AF_INET6)
    printf("tcp %s %u\n", inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text), (unsigned)ntohs(v6->sin6_port));
  else if (endpoint->address.ss_family == AF_VSOCK)
    printf("vsock %u %u\n", vm->svm_cid, vm->svm_port);
  else if (endpoint->hybrid_port)
    printf("hybrid-vsock %s %u\n", local->sun_path, (unsigned)endpoint->hybrid_port);
  else
    printf("unix %s\n", local->sun_path);
}

int main(void) {
  char line[1024];
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    static struct vgs_endpoint endpoint; /* a parsed endpoint must not affect the next line */
    const char *why = vgs_endpoint_parse(&endpoint, line);
    if (why)
      printf("! %s\n", why);
    else
      print(&endpoint);
  }
  return 0;
}
