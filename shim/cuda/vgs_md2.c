#include "vgs_md2.h"
#include <string.h>

/* The permutation of RFC 1319, made of the digits of pi. */
static const uint8_t pi_table[256] = {
    41,  46,  67,  201, 162, 216, 124, 1,   61,  54,  84,  161, 236, 240, 6,   19,  98,  167, 5,   243, 192, 199,
    115, 140, 152, 147, 43,  217, 188, 76,  130, 202, 30,  155, 87,  60,  253, 212, 224, 22,  103, 66,  111, 24,
    138, 23,  229, 18,  190, 78,  196, 214, 218, 158, 222, 73,  160, 251, 245, 142, 187, 47,  238, 122, 169, 104,
    121, 145, 21,  178, 7,   63,  148, 194, 16,  137, 11,  34,  95,  33,  128, 127, 93,  154, 90,  144, 50,  39,
    53,  62,  204, 231, 191, 247, 151, 3,   255, 25,  48,  179, 72,  165, 181, 209, 215, 94,  146, 42,  172, 86,
    170, 198, 79,  184, 56,  210, 150, 164, 125, 182, 118, 252, 107, 226, 156, 116, 4,   241, 69,  157, 112, 89,
    100, 113, 135, 32,  134, 91,  207, 101, 230, 45,  168, 2,   27,  96,  37,  173, 174, 176, 185, 246, 28,  70,
    97,  105, 52,  64,  126, 15,  85,  71,  163, 35,  221, 81,  175, 58,  195, 92,  249, 206, 186, 197, 234, 38,
    44,  83,  13,  110, 133, 40,  132, 9,   211, 223, 205, 244, 65,  129, 77,  82,  106, 220, 55,  200, 108, 193,
    171, 250, 36,  225, 123, 8,   12,  189, 177, 74,  120, 136, 149, 139, 227, 99,  232, 109, 233, 203, 213, 254,
    59,  0,   29,  57,  242, 239, 183, 14,  102, 88,  208, 228, 166, 119, 114, 248, 235, 117, 75,  10,  49,  68,
    80,  180, 143, 237, 31,  26,  219, 153, 141, 51,  159, 17,  131, 20,
};

void vgs_md2_init(struct vgs_md2 *md2) { memset(md2, 0, sizeof *md2); }

static void transform(struct vgs_md2 *md2, const uint8_t block[16]) {
  uint8_t last = md2->checksum[15];
  for (int i = 0; i < 16; i++) {
    md2->state[16 + i] = block[i];
    md2->state[32 + i] = block[i] ^ md2->state[i];
    last = md2->checksum[i] ^= pi_table[block[i] ^ last];
  }
  uint8_t t = 0;
  for (int round = 0; round < 18; round++) {
    for (int i = 0; i < 48; i++)
      t = md2->state[i] ^= pi_table[t];
    t = (uint8_t)(t + round);
  }
}

void vgs_md2_update(struct vgs_md2 *md2, const void *data, size_t nbytes) {
  const uint8_t *bytes = data;
  while (nbytes--) {
    md2->block[md2->used++] = *bytes++;
    if (md2->used == 16) {
      transform(md2, md2->block);
      md2->used = 0;
    }
  }
}

void vgs_md2_final(struct vgs_md2 *md2, uint8_t digest[16]) {
  uint8_t padding[16], checksum[16];
  unsigned nbytes = 16 - md2->used;
  memset(padding, (int)nbytes, nbytes);
  vgs_md2_update(md2, padding, nbytes);
  memcpy(checksum, md2->checksum, 16);
  vgs_md2_update(md2, checksum, 16);
  memcpy(digest, md2->state, 16);
}

void vgs_hmac_md2(const uint8_t key[16], const void *data, size_t nbytes, uint8_t digest[16]) {
  struct vgs_md2 md2;
  uint8_t inner[16], outer[16], inner_digest[16];
  for (int i = 0; i < 16; i++) {
    inner[i] = key[i] ^ 0x36;
    outer[i] = key[i] ^ 0x5c;
  }
  vgs_md2_init(&md2);
  vgs_md2_update(&md2, inner, 16);
  vgs_md2_update(&md2, data, nbytes);
  vgs_md2_final(&md2, inner_digest);
  vgs_md2_init(&md2);
  vgs_md2_update(&md2, outer, 16);
  vgs_md2_update(&md2, inner_digest, 16);
  vgs_md2_final(&md2, digest);
}
