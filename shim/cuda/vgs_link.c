/* cuLink: inputs are kept here and sent when the link is completed. */
#include "vgs_api.h"
#include "vgs_enter.h"
#include "vgs_image.h"
#include "vgs_reason.h"
#include <stdlib.h>
#include <string.h>

enum { INPUT_CUBIN = 0, INPUT_PTX = 1, INPUT_FATBINARY = 2, INPUT_KINDS = 6, INPUTS_MAX = 256 };
#define IMAGE_MAX_NBYTES (1ull << 30)

static struct vgs_link *find(CUlinkState state) { return vgs_object_find(VGW_KIND_LINK, state); }

CUresult vgs_cuLinkCreate_v2(unsigned int numOptions, int *options, void **optionValues, CUlinkState *stateOut) {
  if (!stateOut || (numOptions && (!options || !optionValues)))
    return CUDA_ERROR_INVALID_VALUE;
  struct vgs_link *link = vgs_object_create(VGW_KIND_LINK, vgs_context_entered->wire_id);
  if (!link)
    return CUDA_ERROR_OUT_OF_MEMORY;
  link->last = &link->inputs;
  link->option_count = numOptions; /* the manual: their outputs must stay until the link is destroyed */
  link->options = options;
  link->option_values = optionValues;
  *stateOut = vgs_object_handle(link);
  return CUDA_SUCCESS;
}

/* Cheap checks only: whether the input compiles is known when the link is completed. */
static CUresult check_input(int type, const void *data, size_t nbytes) {
  const char *text = data;
  if (type == INPUT_PTX) {
    const char version[] = ".version";
    for (size_t i = 0; i + sizeof version - 1 <= nbytes; i++)
      if (!memcmp(text + i, version, sizeof version - 1))
        return CUDA_SUCCESS;
    return CUDA_ERROR_INVALID_IMAGE;
  }
  if (type == INPUT_CUBIN)
    return nbytes >= 64 && !memcmp(data, "\177ELF", 4) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
  if (type == INPUT_FATBINARY)
    return nbytes >= 16 && !memcmp(data, "\x50\xed\x55\xba", 4) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
  return type > 0 && type < INPUT_KINDS ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

CUresult vgs_cuLinkAddData_v2(CUlinkState state, int type, void *data, size_t size, const char *name,
                              unsigned int numOptions, int *options, void **optionValues) {
  struct vgs_link *link = find(state);
  (void)name, (void)options, (void)optionValues, (void)numOptions;
  if (!link)
    return CUDA_ERROR_INVALID_HANDLE;
  if (!data || !size || size > IMAGE_MAX_NBYTES || link->image)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_input(type, data, size);
  if (result)
    return result;
  struct vgs_link_input *input = calloc(1, sizeof *input);
  void *copy = malloc(size + 1);
  if (!input || !copy) {
    free(input);
    free(copy);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memcpy(copy, data, size);
  ((char *)copy)[size] = 0; /* PTX may come without its NUL */
  input->data = copy;
  input->nbytes = type == INPUT_PTX ? strlen(copy) + 1 : size;
  *link->last = input;
  link->last = &input->next;
  return CUDA_SUCCESS;
}

CUresult vgs_cuLinkAddFile_v2(CUlinkState state, int type, const char *path, unsigned int numOptions, int *options,
                              void **optionValues) {
  void *data;
  uint64_t nbytes;
  if (!path)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_image_read_file(path, &data, &nbytes);
  if (result)
    return result;
  result = vgs_cuLinkAddData_v2(state, type, data, nbytes, path, numOptions, options, optionValues);
  free(data);
  return result;
}

/* Fetch the linked image in pieces. */
static CUresult fetch(struct vgs_link *link, uint32_t id, uint64_t nbytes) {
  if (!nbytes || nbytes > IMAGE_MAX_NBYTES)
    return CUDA_ERROR_UNKNOWN;
  char *image = calloc(1, nbytes + 64); /* a later measurement may read a whole header */
  if (!image)
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = CUDA_SUCCESS;
  for (uint64_t done = 0; done < nbytes && !result;) {
    uint64_t part = nbytes - done < VGW_PIECE_NBYTES ? nbytes - done : VGW_PIECE_NBYTES;
    result = vgs_send_vgpuImageRead(id, done, part, image + done);
    done += part;
  }
  if (result) {
    free(image);
    return result;
  }
  link->image = image;
  link->image_nbytes = nbytes;
  return CUDA_SUCCESS;
}

CUresult vgs_cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut) {
  struct vgs_link *link = find(state);
  if (!link)
    return CUDA_ERROR_INVALID_HANDLE;
  if (!cubinOut || !link->inputs)
    return CUDA_ERROR_INVALID_VALUE;
  uint32_t count = 0, sent = 0;
  for (struct vgs_link_input *input = link->inputs; input; input = input->next)
    count++;
  if (count > INPUTS_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  vgs_jit_log_start();
  if (!link->image) {
    uint32_t first = vgs_image_reserve(count + 1);
    for (struct vgs_link_input *input = link->inputs; input && !result; input = input->next) {
      struct vgs_image image = {.piece_count = 1, .nbytes = input->nbytes};
      image.pieces[0].data = input->data;
      image.pieces[0].nbytes = input->nbytes;
      result = vgs_image_send_as(&image, first + sent);
      sent += !result;
    }
    uint64_t nbytes;
    if (!result)
      result = vgs_send_vgpuLink(first, count, first + count, &nbytes);
    bool linked = !result;
    if (linked)
      result = fetch(link, first + count, nbytes);
    for (uint32_t i = 0; i < sent; i++)
      vgs_image_destroy(first + i);
    if (linked)
      vgs_image_destroy(first + count);
  }
  vgs_jit_log_finish(result, link->option_count, link->options, link->option_values);
  if (result)
    return result;
  *cubinOut = link->image;
  if (sizeOut)
    *sizeOut = link->image_nbytes;
  return CUDA_SUCCESS;
}

CUresult vgs_cuLinkDestroy(CUlinkState state) {
  struct vgs_link *link = find(state);
  if (!link)
    return CUDA_ERROR_INVALID_HANDLE;
  vgs_object_destroy(link);
  return CUDA_SUCCESS;
}
