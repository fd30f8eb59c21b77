/* cuLink: inputs are kept here. The worker checks each when it is added, and links all when the link is completed. */
#include "vgs_api.h"
#include "vgs_enter.h"
#include "vgs_image.h"
#include "vgs_reason.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_CUBIN = 0, INPUT_PTX = 1, INPUT_FATBINARY = 2, INPUT_KINDS = 6, INPUTS_MAX = 256 };
#define IMAGE_MAX_NBYTES (1ull << 30)

enum { INFO_LOG_SIZE = 4, ERROR_LOG_SIZE = 6 }; /* JIT options, in and out: capacity, then length */

/* The place of a log's size in the program's options, or NULL. `log`: 0 info, 1 error. */
static void **log_size(const struct vgs_link *link, int log) {
  for (unsigned i = 0; i < link->option_count; i++)
    if (link->options[i] == (log ? ERROR_LOG_SIZE : INFO_LOG_SIZE))
      return &link->option_values[i];
  return NULL;
}

/* Write the reasons since vgs_jit_log_start into the program's logs, whose sizes an earlier call may have replaced. */
static void write_logs(const struct vgs_link *link, CUresult result) {
  for (int log = 0; log < 2; log++) {
    void **size = log_size(link, log);
    if (size)
      *size = link->log_nbytes[log];
  }
  vgs_jit_log_finish(result, link->option_count, link->options, link->option_values);
}

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
  for (int log = 0; log < 2; log++) {
    void **size = log_size(link, log);
    link->log_nbytes[log] = size ? *size : NULL;
  }
  *stateOut = vgs_object_handle(link);
  return CUDA_SUCCESS;
}

static const char *const names[] = {"a cubin (ELF)", "PTX (no .version)", "a fatbin"};

static CUresult refuse(int type) {
  char text[160];
  snprintf(text, sizeof text, "an input cannot be linked (%d): it was added as, but is not, %s",
           CUDA_ERROR_INVALID_IMAGE, names[type]);
  vgs_reason_report(CUDA_ERROR_INVALID_IMAGE, text);
  return CUDA_ERROR_INVALID_IMAGE;
}

/* Checks that need no worker. */
static CUresult check_form(int type, const void *data, size_t nbytes) {
  const char *text = data;
  if (type == INPUT_PTX) {
    const char version[] = ".version";
    for (size_t i = 0; i + sizeof version - 1 <= nbytes; i++)
      if (!memcmp(text + i, version, sizeof version - 1))
        return CUDA_SUCCESS;
    return refuse(type);
  }
  if (type == INPUT_CUBIN)
    return nbytes >= 64 && !memcmp(data, "\177ELF", 4) ? CUDA_SUCCESS : refuse(type);
  if (type == INPUT_FATBINARY)
    return nbytes >= 16 && !memcmp(data, "\x50\xed\x55\xba", 4) ? CUDA_SUCCESS : refuse(type);
  if (type < 0 || type >= INPUT_KINDS)
    return CUDA_ERROR_INVALID_VALUE;
  vgs_reason_report(CUDA_ERROR_NOT_SUPPORTED, "an input cannot be linked (801): objects, libraries and LTO-IR are not "
                                              "supported: pass PTX, a fatbin or a cubin");
  return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult send_input(const struct vgs_link_input *input, uint32_t id) {
  struct vgs_image image = {.piece_count = 1, .nbytes = input->nbytes};
  image.pieces[0].data = input->data;
  image.pieces[0].nbytes = input->nbytes;
  return vgs_image_send_as(&image, id);
}

/* Have the worker check that the input can be linked. */
static CUresult check(const struct vgs_link_input *input) {
  uint64_t nbytes;
  uint32_t id = vgs_image_reserve(1);
  CUresult result = send_input(input, id);
  if (result)
    return result;
  result = vgs_send_vgpuLink(id, 1, 0, &nbytes);
  vgs_image_destroy(id);
  /* A worker that cannot check answers so, too; lack of memory shows again when the link is completed. */
  return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : result;
}

CUresult vgs_cuLinkAddData_v2(CUlinkState state, int type, void *data, size_t size, const char *name,
                              unsigned int numOptions, int *options, void **optionValues) {
  struct vgs_link *link = find(state);
  (void)name, (void)options, (void)optionValues, (void)numOptions;
  if (!link)
    return CUDA_ERROR_INVALID_HANDLE;
  if (!data || !size || size > IMAGE_MAX_NBYTES || link->image)
    return CUDA_ERROR_INVALID_VALUE;
  vgs_jit_log_start();
  CUresult result = check_form(type, data, size);
  if (result) {
    write_logs(link, result);
    return result;
  }
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
  result = check(input);
  write_logs(link, result);
  if (result) {
    free(copy);
    free(input);
    return result;
  }
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
      result = send_input(input, first + sent);
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
  write_logs(link, result);
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
