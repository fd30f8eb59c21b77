/* A cryptographic digest of an image: BLAKE2b (RFC 7693) in its tree mode of two levels, as its paper's section 2.10
 * and Python's hashlib.blake2b have it: leaves of 16 KiB, digests of 32 bytes, unlimited fanout.
 *
 * A tree, because four leaves go through one core side by side; the host checks it leaf by leaf with its own
 * implementation (daemon/vgpud/services/image_digest.py). */
#ifndef VGS_DIGEST_H
#define VGS_DIGEST_H

#include <stdint.h>

enum { VGS_DIGEST_NBYTES = 32, VGS_DIGEST_LEAF_NBYTES = 16 << 10, VGS_DIGEST_LANES = 4 };

/* Zero-initialise by vgs_digest_init; of fixed size, nothing to free. */
struct vgs_digest {
  uint64_t leaf_count;  /* digested so far */
  uint64_t root[8];     /* the root's chain value */
  uint64_t root_nbytes; /* bytes compressed into the root */
  uint8_t root_block[VGS_DIGEST_LANES * VGS_DIGEST_NBYTES];
  uint32_t root_used;
  uint32_t used; /* of `held` */
  uint8_t held[VGS_DIGEST_LANES * VGS_DIGEST_LEAF_NBYTES];
};

void vgs_digest_init(struct vgs_digest *digest);
void vgs_digest_add(struct vgs_digest *digest, const void *data, uint64_t nbytes);
void vgs_digest_finish(struct vgs_digest *digest, uint8_t out[VGS_DIGEST_NBYTES]);

#endif
