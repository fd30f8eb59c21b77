#include "vgs_image.h"
#include "vgs_api.h"
#include "vgs_digest.h"
#include "vgs_reason.h"
#include "vgs_session.h"
#include "vgw_wire.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The layout of nvcc's .nvFatBinSegment and .nv_fatbin, seen in every CUDA program. */
enum { WRAPPER_MAGIC = 0x466243b1, CONTAINER_MAGIC = (int)0xba55ed50, ELF_MAGIC = 0x464c457f };
static const char TILE_IR_MAGIC[] = "\177TileIR";

struct wrapper {
  uint32_t magic, version;
  const void *data;        /* a container */
  const void *const *tail; /* version 2: further containers, ended by NULL */
};

struct container {
  uint32_t magic;
  uint16_t version, header_nbytes;
  uint64_t nbytes; /* after the header */
};

static const char remedy[] = "pass PTX, a fatbin or a cubin, whole and as nvcc wrote it";

/* Report why an image is refused. */
static CUresult refuse(const char *what) {
  char text[256];
  snprintf(text, sizeof text, "an image cannot be loaded (%d): %s: %s", CUDA_ERROR_INVALID_IMAGE, what, remedy);
  vgs_reason_report(CUDA_ERROR_INVALID_IMAGE, text);
  return CUDA_ERROR_INVALID_IMAGE;
}

static CUresult refuse_start(const uint8_t *bytes, uint64_t nbytes) {
  char what[96];
  if (nbytes >= 4)
    snprintf(what, sizeof what, "what begins with the bytes %02x %02x %02x %02x is not an image", bytes[0], bytes[1],
             bytes[2], bytes[3]);
  else
    snprintf(what, sizeof what, "a text of %d characters is not an image", (int)nbytes);
  return refuse(what);
}

static uint32_t magic_of(const void *data) {
  uint32_t magic;
  memcpy(&magic, data, sizeof magic);
  return magic;
}

static CUresult add(struct vgs_image *image, const void *data, uint64_t nbytes) {
  if (image->piece_count == VGS_IMAGE_PIECES || __builtin_add_overflow(image->nbytes, nbytes, &image->nbytes))
    return refuse("it has too many parts, or they are too large");
  image->pieces[image->piece_count].data = data;
  image->pieces[image->piece_count++].nbytes = nbytes;
  return CUDA_SUCCESS;
}

static CUresult add_container(struct vgs_image *image, const void *data) {
  struct container container;
  memcpy(&container, data, sizeof container);
  if (container.magic != (uint32_t)CONTAINER_MAGIC || container.header_nbytes < sizeof container ||
      container.nbytes > UINT64_MAX - container.header_nbytes)
    return refuse("the header of its fatbin is damaged");
  return add(image, data, container.header_nbytes + container.nbytes);
}

/* The image ends with its last table: in a cubin these are the program headers, after the section headers. */
static CUresult add_elf(struct vgs_image *image, const uint8_t *elf) {
  uint64_t program_offset, section_offset;
  uint16_t entry[4]; /* program header size and count, section header size and count */
  memcpy(&program_offset, elf + 32, 8);
  memcpy(&section_offset, elf + 40, 8);
  memcpy(entry, elf + 54, 8);
  uint64_t program_end = 0, section_end = 0;
  if (elf[4] != 2 || elf[5] != 1 || /* 64 bits, little-endian */
      __builtin_add_overflow(program_offset, (uint64_t)entry[0] * entry[1], &program_end) ||
      __builtin_add_overflow(section_offset, (uint64_t)entry[2] * entry[3], &section_end))
    return refuse("its ELF header is damaged, or not of 64 bits");
  uint64_t end = program_end > section_end ? program_end : section_end;
  return end ? add(image, elf, end) : refuse("an ELF file without tables");
}

CUresult vgs_image_measure(const void *data, struct vgs_image *image) {
  image->piece_count = 0;
  image->nbytes = 0;
  const uint8_t *bytes = data;
  if (bytes[0] && (bytes[0] < 0x7f || bytes[0] >= 0xc2) && strnlen(data, 4) < 4)
    return refuse_start(bytes, strnlen(data, 4));
  if (!strncmp(data, TILE_IR_MAGIC, sizeof TILE_IR_MAGIC - 1)) {
    return refuse("CUDA Tile IR, whose form is not public");
  }
  uint32_t magic = magic_of(data);
  if (magic == WRAPPER_MAGIC) {
    const struct wrapper *wrapper = data;
    if (wrapper->version != 1 && wrapper->version != 2)
      return refuse("a fatbin wrapper of an unknown version");
    CUresult result = add_container(image, wrapper->data);
    for (const void *const *tail = wrapper->version == 2 ? wrapper->tail : NULL; !result && tail && *tail; tail++)
      result = add_container(image, *tail);
    return result;
  }
  if (magic == (uint32_t)CONTAINER_MAGIC)
    return add_container(image, data);
  if (magic == ELF_MAGIC)
    return add_elf(image, data);
  if ((bytes[0] < ' ' && bytes[0] != '\n' && bytes[0] != '\t' && bytes[0] != '\r') || bytes[0] > '~')
    return refuse_start(bytes, 4);
  return add(image, data, strlen(data) + 1); /* PTX: documented to be NUL-terminated */
}

static uint32_t last_image_id; /* atomic */

uint32_t vgs_image_reserve(uint32_t count) { return __atomic_fetch_add(&last_image_id, count, __ATOMIC_RELAXED) + 1; }

CUresult vgs_image_send_as(const struct vgs_image *image, uint32_t id) {
  uint64_t offset = 0;
  for (uint32_t i = 0; i < image->piece_count; i++) {
    const char *data = image->pieces[i].data;
    for (uint64_t done = 0; done < image->pieces[i].nbytes;) {
      uint64_t left = image->pieces[i].nbytes - done, part = left < VGW_PIECE_NBYTES ? left : VGW_PIECE_NBYTES;
      CUresult result = vgs_send_vgpuImageWrite(id, image->nbytes, offset, part, data + done, false);
      if (result)
        return result;
      done += part;
      offset += part;
    }
  }
  return CUDA_SUCCESS;
}

/* Offer the image by its digest. *known: the host has it already, and it is in place under `id`. */
static CUresult offer(const struct vgs_image *image, uint32_t id, bool *known) {
  uint64_t name[VGS_DIGEST_NBYTES / 8];
  int answer = 0;
  *known = false;
  struct vgs_digest *digest = malloc(sizeof *digest);
  if (!digest)
    return CUDA_ERROR_OUT_OF_MEMORY;
  vgs_digest_init(digest);
  for (uint32_t i = 0; i < image->piece_count; i++)
    vgs_digest_add(digest, image->pieces[i].data, image->pieces[i].nbytes);
  vgs_digest_finish(digest, (uint8_t *)name);
  free(digest);
  CUresult result = vgs_send_vgpuImageOffer(id, image->nbytes, name[0], name[1], name[2], name[3], &answer);
  *known = !result && answer == 1;
  return result;
}

CUresult vgs_image_send(const struct vgs_image *image, uint32_t *id) {
  bool known = false;
  CUresult result = CUDA_SUCCESS;
  *id = vgs_image_reserve(1);
  if (image->nbytes >= VGS_IMAGE_OFFERED_NBYTES && vgs_session_has_images())
    result = offer(image, *id, &known);
  return result || known ? result : vgs_image_send_as(image, *id);
}

void vgs_image_destroy(uint32_t id) { vgs_send_vgpuImageDrop(id, false); }

CUresult vgs_image_upload(const void *data, uint32_t *id) {
  struct vgs_image *image = data ? malloc(sizeof *image) : NULL;
  if (!image)
    return data ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
  uint32_t sent;
  CUresult result = vgs_image_measure(data, image);
  if (!result && !(result = vgs_image_send(image, &sent)))
    *id = sent;
  free(image);
  return result;
}

CUresult vgs_image_with(const void *data, CUresult (*load)(uint32_t, uint32_t), uint32_t object_id) {
  VGS_IMAGE_ID id = 0;
  CUresult result = vgs_image_upload(data, &id);
  return result ? result : load(object_id, id);
}

CUresult vgs_image_read_file(const char *path, void **data, uint64_t *nbytes) {
  struct stat status;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0)
    return CUDA_ERROR_FILE_NOT_FOUND;
  if (fstat(fd, &status) || !S_ISREG(status.st_mode)) {
    close(fd);
    return CUDA_ERROR_FILE_NOT_FOUND;
  }
  size_t capacity = (size_t)status.st_size + 64,
         used = 0; /* 64 zeros follow the text: PTX needs a NUL, headers are read whole */
  char *text = calloc(1, capacity);
  ssize_t got = text ? 1 : 0;
  while (text && used < (size_t)status.st_size && got > 0) {
    got = read(fd, text + used, (size_t)status.st_size - used);
    if (got < 0 && errno == EINTR)
      got = 1;
    else if (got > 0)
      used += (size_t)got;
  }
  close(fd);
  if (!text)
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (used < (size_t)status.st_size) {
    free(text);
    return CUDA_ERROR_FILE_NOT_FOUND;
  }
  *data = text;
  *nbytes = used;
  return CUDA_SUCCESS;
}

CUresult vgs_image_read(const char *path, void **data) {
  uint64_t nbytes;
  CUresult result = vgs_image_read_file(path, data, &nbytes);
  if (result)
    return result;
  struct vgs_image *image = malloc(sizeof *image);
  result = image ? vgs_image_measure(*data, image) : CUDA_ERROR_OUT_OF_MEMORY;
  if (!result && image->nbytes > nbytes + 1) {
    char what[160];
    snprintf(what, sizeof what, "the file has %llu bytes, but its headers describe %llu: it was cut off",
             (unsigned long long)nbytes, (unsigned long long)image->nbytes);
    result = refuse(what);
  }
  free(image);
  if (result)
    free(*data);
  return result;
}
