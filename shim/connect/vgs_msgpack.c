#include "vgs_msgpack.h"
#include <string.h>

enum { DEPTH_MAX = 16 };

static void put(struct vgs_packer *packer, const void *data, size_t nbytes) {
  if (packer->failed || nbytes > (size_t)(packer->end - packer->next)) {
    packer->failed = true;
    return;
  }
  memcpy(packer->next, data, nbytes);
  packer->next += nbytes;
}

/* A tag and a big-endian number of `nbytes` bytes. */
static void put_tagged(struct vgs_packer *packer, uint8_t tag, uint64_t value, unsigned nbytes) {
  uint8_t bytes[9] = {tag};
  for (unsigned i = 0; i < nbytes; i++)
    bytes[1 + i] = (uint8_t)(value >> (8 * (nbytes - 1 - i)));
  put(packer, bytes, 1 + nbytes);
}

void vgs_pack_map(struct vgs_packer *packer, uint32_t pairs) {
  if (pairs < 16)
    put_tagged(packer, (uint8_t)(0x80 | pairs), 0, 0);
  else
    put_tagged(packer, 0xdf, pairs, 4);
}

void vgs_pack_array(struct vgs_packer *packer, uint32_t items) {
  if (items < 16)
    put_tagged(packer, (uint8_t)(0x90 | items), 0, 0);
  else
    put_tagged(packer, 0xdd, items, 4);
}

void vgs_pack_str(struct vgs_packer *packer, const char *text) {
  size_t nbytes = strlen(text);
  if (nbytes > UINT32_MAX) {
    packer->failed = true;
    return;
  }
  if (nbytes < 32)
    put_tagged(packer, (uint8_t)(0xa0 | nbytes), 0, 0);
  else
    put_tagged(packer, 0xdb, nbytes, 4);
  put(packer, text, nbytes);
}

void vgs_pack_int(struct vgs_packer *packer, int64_t value) {
  if (value >= 0 && value < 128)
    put_tagged(packer, (uint8_t)value, 0, 0);
  else
    put_tagged(packer, 0xd3, (uint64_t)value, 8);
}

static const uint8_t *take(struct vgs_unpacker *unpacker, uint64_t nbytes) {
  if (unpacker->failed || nbytes > (uint64_t)(unpacker->end - unpacker->next)) {
    unpacker->failed = true;
    return NULL;
  }
  const uint8_t *data = unpacker->next;
  unpacker->next += nbytes;
  return data;
}

static uint64_t take_number(struct vgs_unpacker *unpacker, unsigned nbytes) {
  const uint8_t *data = take(unpacker, nbytes);
  uint64_t value = 0;
  for (unsigned i = 0; data && i < nbytes; i++)
    value = value << 8 | data[i];
  return value;
}

static uint8_t take_tag(struct vgs_unpacker *unpacker) {
  const uint8_t *tag = take(unpacker, 1);
  return tag ? *tag : 0xc1; /* 0xc1 is never used by msgpack */
}

static uint32_t wrong(struct vgs_unpacker *unpacker) {
  unpacker->failed = true;
  return 0;
}

/* Each announced item takes at least one byte, so a count beyond the bytes that are left is wrong: refuse it before it
 * is used in a loop. */
static uint32_t plausible(struct vgs_unpacker *unpacker, uint64_t count, unsigned bytes_each) {
  if (unpacker->failed || count * bytes_each > (uint64_t)(unpacker->end - unpacker->next))
    return wrong(unpacker);
  return (uint32_t)count;
}

uint32_t vgs_unpack_map(struct vgs_unpacker *unpacker) {
  uint8_t tag = take_tag(unpacker);
  if ((tag & 0xf0) == 0x80)
    return plausible(unpacker, tag & 15, 2);
  if (tag == 0xde || tag == 0xdf)
    return plausible(unpacker, take_number(unpacker, tag == 0xde ? 2 : 4), 2);
  return wrong(unpacker);
}

uint32_t vgs_unpack_array(struct vgs_unpacker *unpacker) {
  uint8_t tag = take_tag(unpacker);
  if ((tag & 0xf0) == 0x90)
    return plausible(unpacker, tag & 15, 1);
  if (tag == 0xdc || tag == 0xdd)
    return plausible(unpacker, take_number(unpacker, tag == 0xdc ? 2 : 4), 1);
  return wrong(unpacker);
}

const char *vgs_unpack_str(struct vgs_unpacker *unpacker, uint32_t *nbytes) {
  uint8_t tag = take_tag(unpacker);
  if ((tag & 0xe0) == 0xa0)
    *nbytes = tag & 31;
  else if (tag >= 0xd9 && tag <= 0xdb)
    *nbytes = (uint32_t)take_number(unpacker, 1u << (tag - 0xd9));
  else
    *nbytes = wrong(unpacker);
  const uint8_t *data = take(unpacker, *nbytes);
  if (!data)
    *nbytes = 0;
  return (const char *)data;
}

const uint8_t *vgs_unpack_bin(struct vgs_unpacker *unpacker, uint32_t *nbytes) {
  uint8_t tag = take_tag(unpacker);
  *nbytes = tag >= 0xc4 && tag <= 0xc6 ? (uint32_t)take_number(unpacker, 1u << (tag - 0xc4)) : wrong(unpacker);
  const uint8_t *data = take(unpacker, *nbytes);
  if (!data)
    *nbytes = 0;
  return data;
}

int64_t vgs_unpack_int(struct vgs_unpacker *unpacker, int64_t least, int64_t greatest) {
  uint8_t tag = take_tag(unpacker);
  int64_t value = 0;
  if (tag < 0x80)
    value = tag;
  else if (tag >= 0xe0)
    value = (int8_t)tag;
  else if (tag >= 0xcc && tag <= 0xcf) {
    uint64_t number = take_number(unpacker, 1u << (tag - 0xcc));
    if (number > INT64_MAX)
      wrong(unpacker);
    value = (int64_t)number;
  } else if (tag >= 0xd0 && tag <= 0xd3) {
    unsigned nbytes = 1u << (tag - 0xd0);
    uint64_t number = take_number(unpacker, nbytes);
    unsigned unused_bits = 64 - 8 * nbytes;
    value = (int64_t)(number << unused_bits) >> unused_bits;
  } else
    wrong(unpacker);
  if (value < least || value > greatest)
    wrong(unpacker);
  return unpacker->failed ? least : value;
}

static void skip(struct vgs_unpacker *unpacker, int depth) {
  if (unpacker->failed || unpacker->next == unpacker->end || depth > DEPTH_MAX) {
    unpacker->failed = true;
    return;
  }
  uint8_t tag = *unpacker->next;
  uint32_t nbytes;
  if ((tag & 0xf0) == 0x80 || tag == 0xde || tag == 0xdf) {
    for (uint64_t left = 2ull * vgs_unpack_map(unpacker); left && !unpacker->failed; left--)
      skip(unpacker, depth + 1);
  } else if ((tag & 0xf0) == 0x90 || tag == 0xdc || tag == 0xdd) {
    for (uint32_t left = vgs_unpack_array(unpacker); left && !unpacker->failed; left--)
      skip(unpacker, depth + 1);
  } else if ((tag & 0xe0) == 0xa0 || (tag >= 0xd9 && tag <= 0xdb))
    vgs_unpack_str(unpacker, &nbytes);
  else if (tag >= 0xc4 && tag <= 0xc6)
    vgs_unpack_bin(unpacker, &nbytes);
  else if (tag == 0xc0 || tag == 0xc2 || tag == 0xc3)
    take(unpacker, 1);
  else if (tag == 0xca || tag == 0xcb)
    take(unpacker, tag == 0xca ? 5 : 9);
  else if (tag == 0xcf) /* may exceed INT64_MAX, which vgs_unpack_int refuses */
    take(unpacker, 9);
  else
    vgs_unpack_int(unpacker, INT64_MIN, INT64_MAX);
}

void vgs_unpack_skip(struct vgs_unpacker *unpacker) { skip(unpacker, 0); }

bool vgs_str_is(const char *text, uint32_t nbytes, const char *wanted) {
  return text && strlen(wanted) == nbytes && !memcmp(text, wanted, nbytes);
}

void vgs_unpack_text(struct vgs_unpacker *unpacker, char *into, size_t capacity) {
  uint32_t nbytes;
  const char *text = vgs_unpack_str(unpacker, &nbytes);
  if (!text || nbytes >= capacity || memchr(text, 0, nbytes)) {
    unpacker->failed = true;
    return;
  }
  memcpy(into, text, nbytes);
  into[nbytes] = 0;
}
