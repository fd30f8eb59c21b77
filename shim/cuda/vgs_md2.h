/* MD2 (RFC 1319) and HMAC (RFC 2104) over it. Not for security: one of the private tables is checked with it. */
#ifndef VGS_MD2_H
#define VGS_MD2_H

#include <stddef.h>
#include <stdint.h>

struct vgs_md2 {
  uint8_t state[48], checksum[16], block[16];
  unsigned used; /* bytes of `block` */
};

void vgs_md2_init(struct vgs_md2 *md2);
void vgs_md2_update(struct vgs_md2 *md2, const void *data, size_t nbytes);
void vgs_md2_final(struct vgs_md2 *md2, uint8_t digest[16]);

/* HMAC with a 16-byte key, which is MD2's block length. */
void vgs_hmac_md2(const uint8_t key[16], const void *data, size_t nbytes, uint8_t digest[16]);

#endif
