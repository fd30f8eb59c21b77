/* Program images: how long they are, and getting them to the worker. */
#ifndef VGS_IMAGE_H
#define VGS_IMAGE_H

#include "vgw_cuda.h"
#include <stdint.h>

/* One image to send: some contiguous pieces of the program's memory. Fatbin containers of a wrapper travel one after
 * another. */
enum { VGS_IMAGE_PIECES = 512 };
struct vgs_image {
  uint32_t piece_count;
  struct {
    const void *data;
    uint64_t nbytes;
  } pieces[VGS_IMAGE_PIECES];
  uint64_t nbytes;
};

/* Recognise an image by its first bytes and measure it: fatbin wrapper (versions 1 and 2), fatbin, ELF, or PTX text.
 * INVALID_IMAGE for anything else. The caller's pointer is all that CUDA gives, so the image's own sizes are believed.
 */
CUresult vgs_image_measure(const void *data, struct vgs_image *image);

/* From this size on an image is offered by its digest first, and uploaded only if the host lacks it: below it, asking
 * costs more than sending. */
enum { VGS_IMAGE_OFFERED_NBYTES = 64 << 10 };

/* Make the image known to the worker under a fresh id. The worker forgets it on vgs_image_destroy. */
CUresult vgs_image_send(const struct vgs_image *image, uint32_t *id);
void vgs_image_destroy(uint32_t id);

/* Measure and upload. INVALID_VALUE: NULL. */
CUresult vgs_image_upload(const void *data, uint32_t *id);
#define VGS_IMAGE_ID __attribute__((cleanup(vgs_image_destroy_held))) uint32_t
static inline void vgs_image_destroy_held(const uint32_t *id) {
  if (*id)
    vgs_image_destroy(*id);
}

/* Measure, upload, call `load` with the image's id, and drop the image. */
CUresult vgs_image_with(const void *data, CUresult (*load)(uint32_t object_id, uint32_t image_id), uint32_t object_id);

/* Reserve consecutive image ids, for a link. Returns the first. */
uint32_t vgs_image_reserve(uint32_t count);
CUresult vgs_image_send_as(const struct vgs_image *image, uint32_t id);

/* Read a whole file of the client and terminate it by NUL. 0, FILE_NOT_FOUND, OUT_OF_MEMORY. */
CUresult vgs_image_read_file(const char *path, void **data, uint64_t *nbytes);
/* The same for a file that must hold one complete image; else INVALID_IMAGE. The caller frees *data. */
CUresult vgs_image_read(const char *path, void **data);

#endif
