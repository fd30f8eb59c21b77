/* Compilers' options: the architecture to compile for, and the limit of a thread's registers. */
#ifndef VGS_ARCH_H
#define VGS_ARCH_H

#include <stdbool.h>
#include <stddef.h>

enum { VGS_ARCH_TEXT_NBYTES = 64 };

/* A copy of a compiler's options, of which the architecture's may be replaced. */
struct vgs_options {
  const char **items; /* owned; the strings are the program's, except `arch` */
  int count;
  int at;               /* of the option that holds the architecture, or -1 */
  const char *original; /* that option as the program gave it */
  int prefix;           /* bytes of it before sm_ or compute_ */
  int asked;            /* the architecture's number, as 90 */
  bool machine;         /* sm_, not compute_ */
  char arch[VGS_ARCH_TEXT_NBYTES];
  int registers; /* -maxrregcount; 0: no limit */
};

/* Copy the options, with space for one more. False: out of memory. If several name an architecture, the last one
 * counts, as in NVIDIA's compilers. */
bool vgs_options_init(struct vgs_options *options, int count, const char *const *items);
void vgs_options_fini(struct vgs_options *options);

/* Replace the number of the architecture to compile for. */
void vgs_options_set_arch(struct vgs_options *options, int number);

/* A line of PTX that has the simulator limit a thread's registers, as ptxas does for the option; it may stand anywhere
 * at module scope. Other compilers ignore it. Empty without a limit. Returns its length. */
enum { VGS_LIMIT_NBYTES = 48 };
size_t vgs_register_limit(char text[VGS_LIMIT_NBYTES], int registers);

#endif
