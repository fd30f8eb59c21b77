#include "vgs_nvml_session.h"
#include "vgs_log.h"
#include "vgs_socket.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER_TIMEOUT_MS = 5000, ENTRY_MAX = 65536 };

static nvmlReturn_t nvml_result(CUresult result) {
  switch (result) {
  case CUDA_SUCCESS:
    return NVML_SUCCESS;
  case CUDA_ERROR_OUT_OF_MEMORY:
    return NVML_ERROR_MEMORY;
  case CUDA_ERROR_NOT_PERMITTED:
    return NVML_ERROR_NO_PERMISSION;
  case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
  case CUDA_ERROR_NO_DEVICE:
  case CUDA_ERROR_SYSTEM_NOT_READY:
    return NVML_ERROR_DRIVER_NOT_LOADED;
  default:
    return NVML_ERROR_UNKNOWN;
  }
}

/* {type: "nvml", call, device, arguments} */
static CUresult send_question(int fd, const char *call, int device, const int64_t *arguments, uint32_t count) {
  uint8_t body[256];
  struct vgs_packer packer = {.next = body, .end = body + sizeof body};
  vgs_pack_map(&packer, 4);
  vgs_pack_str(&packer, "type");
  vgs_pack_str(&packer, "nvml");
  vgs_pack_str(&packer, "call");
  vgs_pack_str(&packer, call);
  vgs_pack_str(&packer, "device");
  vgs_pack_int(&packer, device);
  vgs_pack_str(&packer, "arguments");
  vgs_pack_array(&packer, count);
  for (uint32_t i = 0; i < count; i++)
    vgs_pack_int(&packer, arguments[i]);
  if (packer.failed)
    return CUDA_ERROR_UNKNOWN;
  return vgs_frame_send(fd, body, (uint32_t)(packer.next - body));
}

/* {type: "answer", result, value}: the body becomes the reply's. */
static CUresult receive_answer(int fd, struct vgs_nvml_reply *reply) {
  uint32_t nbytes;
  memset(reply, 0, sizeof *reply);
  CUresult result = vgs_frame_receive(fd, &reply->body, &nbytes, vgs_now_ms() + ANSWER_TIMEOUT_MS);
  if (result || (result = vgs_frame_check(reply->body, nbytes, "answer")))
    goto failed;
  struct vgs_unpacker unpacker = {.next = reply->body, .end = reply->body + nbytes};
  for (uint32_t left = vgs_unpack_map(&unpacker); left && !unpacker.failed; left--) {
    uint32_t key_nbytes;
    const char *key = vgs_unpack_str(&unpacker, &key_nbytes);
    if (vgs_str_is(key, key_nbytes, "result"))
      reply->result = (nvmlReturn_t)vgs_unpack_int(&unpacker, 0, NVML_ERROR_UNKNOWN);
    else if (vgs_str_is(key, key_nbytes, "value")) {
      reply->value = unpacker;
      vgs_unpack_skip(&unpacker);
      reply->value.end = unpacker.next;
    } else
      vgs_unpack_skip(&unpacker);
  }
  if (!unpacker.failed)
    return CUDA_SUCCESS;
  vgs_log(VGS_LOG_ERROR, "daemon: an answer that cannot be read");
  result = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
failed:
  free(reply->body);
  memset(reply, 0, sizeof *reply);
  return result;
}

/* The row of a name, or -1 when this library does not know it (vgpud may be newer). */
static int64_t find_function(const char *name, uint32_t nbytes) {
  uint32_t low = 0, high = vgs_nvml_function_count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    const char *candidate = vgs_nvml_functions[middle].name;
    int order = strncmp(candidate, name, nbytes);
    if (!order && candidate[nbytes])
      order = 1;
    if (!order)
      return middle;
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return -1;
}

/* [device, call, arguments or nil, result, value] */
static void unpack_entry(struct vgs_unpacker *unpacker, struct vgs_nvml_session *session) {
  struct vgs_nvml_entry *entry = &session->entries[session->entry_count];
  uint32_t nbytes;
  if (vgs_unpack_array(unpacker) != 5)
    unpacker->failed = true;
  entry->device = (int32_t)vgs_unpack_int(unpacker, VGS_NVML_SYSTEM, VGS_DEVICE_MAX - 1);
  const char *name = vgs_unpack_str(unpacker, &nbytes);
  entry->count = -1;
  if (!unpacker->failed && unpacker->next < unpacker->end && *unpacker->next == 0xc0)
    vgs_unpack_skip(unpacker);
  else {
    entry->count = (int32_t)vgs_unpack_array(unpacker);
    if (entry->count > VGS_NVML_ARGUMENT_MAX)
      unpacker->failed = true;
    for (int32_t i = 0; i < entry->count && !unpacker->failed; i++)
      entry->arguments[i] = vgs_unpack_int(unpacker, INT64_MIN, INT64_MAX);
  }
  entry->result = (nvmlReturn_t)vgs_unpack_int(unpacker, 0, NVML_ERROR_UNKNOWN);
  entry->value = unpacker->next;
  vgs_unpack_skip(unpacker);
  entry->value_nbytes = (uint32_t)(unpacker->next - entry->value);
  int64_t function = unpacker->failed ? -1 : find_function(name, nbytes);
  if (function >= 0) {
    entry->function = (uint32_t)function;
    session->entry_count++;
  }
}

static CUresult fetch_snapshot(struct vgs_nvml_session *session) {
  struct vgs_nvml_reply reply;
  CUresult result = send_question(session->fd, "snapshot", VGS_NVML_SYSTEM, NULL, 0);
  if (result || (result = receive_answer(session->fd, &reply)))
    return result;
  session->body = reply.body;
  uint32_t count = vgs_unpack_array(&reply.value);
  if (reply.result || reply.value.failed || count > ENTRY_MAX) {
    vgs_log(VGS_LOG_ERROR, "daemon: no NVML snapshot (result %u)", reply.result);
    return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  }
  session->entries = calloc(count ? count : 1, sizeof *session->entries);
  if (!session->entries)
    return CUDA_ERROR_OUT_OF_MEMORY;
  for (; count && !reply.value.failed; count--)
    unpack_entry(&reply.value, session);
  if (!reply.value.failed)
    return CUDA_SUCCESS;
  vgs_log(VGS_LOG_ERROR, "daemon: an NVML snapshot that cannot be read");
  return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
}

nvmlReturn_t vgs_nvml_session_open(struct vgs_nvml_session *session) {
  struct vgs_endpoint endpoint;
  struct vgs_welcome welcome;
  memset(session, 0, sizeof *session);
  session->fd = -1;
  CUresult result = vgs_endpoint_find(&endpoint);
  if (result)
    return nvml_result(result);
  session->fd = vgs_endpoint_connect(&endpoint);
  if (session->fd < 0) {
    session->fd = -1;
    return NVML_ERROR_DRIVER_NOT_LOADED;
  }
  result = vgs_hello(session->fd, &endpoint, "libnvidia-ml", false, &welcome);
  if (!result) {
    session->inventory = welcome.inventory;
    result = fetch_snapshot(session);
  }
  if (result)
    vgs_nvml_session_close(session);
  return nvml_result(result);
}

void vgs_nvml_session_close(struct vgs_nvml_session *session) {
  if (session->fd >= 0)
    close(session->fd);
  vgs_inventory_fini(&session->inventory);
  free(session->entries);
  free(session->body);
  memset(session, 0, sizeof *session);
  session->fd = -1;
}

const struct vgs_nvml_entry *vgs_nvml_session_find(const struct vgs_nvml_session *session,
                                                   const struct vgs_nvml_question *question) {
  for (uint32_t i = 0; i < session->entry_count; i++) {
    const struct vgs_nvml_entry *entry = &session->entries[i];
    if (entry->function != question->function || entry->device != question->device)
      continue;
    if (entry->count < 0 || ((uint32_t)entry->count == question->count &&
                             !memcmp(entry->arguments, question->arguments, question->count * sizeof(int64_t))))
      return entry;
  }
  return NULL;
}

bool vgs_nvml_session_ask(struct vgs_nvml_session *session, const struct vgs_nvml_question *question,
                          struct vgs_nvml_reply *reply) {
  const char *name = vgs_nvml_functions[question->function].name;
  if (session->fd >= 0 && !send_question(session->fd, name, question->device, question->arguments, question->count) &&
      !receive_answer(session->fd, reply))
    return true;
  if (session->fd >= 0)
    close(session->fd);
  session->fd = -1;
  return false;
}
