/* The part of msgpack (msgpack.org, spec 2.0) that the control phase uses: maps, arrays, strings, binary, integers,
 * nil, booleans. Both cursors are bounded and keep a sticky failure: check `failed` once at the end. */
#ifndef VGS_MSGPACK_H
#define VGS_MSGPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vgs_packer {
  uint8_t *next, *end;
  bool failed; /* did not fit */
};

void vgs_pack_map(struct vgs_packer *packer, uint32_t pairs);
void vgs_pack_array(struct vgs_packer *packer, uint32_t items);
void vgs_pack_str(struct vgs_packer *packer, const char *text);
void vgs_pack_int(struct vgs_packer *packer, int64_t value);

struct vgs_unpacker {
  const uint8_t *next, *end;
  bool failed; /* ended early, wrong type, or nested too deep */
};

/* Number of pairs or items; 0 on failure. */
uint32_t vgs_unpack_map(struct vgs_unpacker *unpacker);
uint32_t vgs_unpack_array(struct vgs_unpacker *unpacker);
/* A view into the buffer, not terminated; NULL with *nbytes 0 on failure. */
const char *vgs_unpack_str(struct vgs_unpacker *unpacker, uint32_t *nbytes);
const uint8_t *vgs_unpack_bin(struct vgs_unpacker *unpacker, uint32_t *nbytes);
/* An integer within [least, greatest]; `least` on failure. */
int64_t vgs_unpack_int(struct vgs_unpacker *unpacker, int64_t least, int64_t greatest);
void vgs_unpack_skip(struct vgs_unpacker *unpacker);

/* Whether the `nbytes` bytes at `text` are `wanted`. */
bool vgs_str_is(const char *text, uint32_t nbytes, const char *wanted);
/* Copy a string into a terminated array; fails the unpacker if it does not fit or holds a NUL. */
void vgs_unpack_text(struct vgs_unpacker *unpacker, char *into, size_t capacity);

#endif
