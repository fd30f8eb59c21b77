/* The mark of vgpu's libraries: an ELF note by which `vgpu doctor` and `vgpu install` distinguish them from NVIDIA's
 * without loading them. Owner "vgpu", type 1, the highest version of the protocol that the library speaks. */
#include "vgs_hello.h"
#include <stdint.h>

__attribute__((section(".note.vgpu"), used, aligned(4))) static const struct {
  uint32_t owner_nbytes, version_nbytes, type;
  char owner[8];
  uint32_t version;
} mark = {.owner_nbytes = 5, .version_nbytes = 4, .type = 1, .owner = "vgpu", .version = VGS_PROTOCOL_VERSION};
