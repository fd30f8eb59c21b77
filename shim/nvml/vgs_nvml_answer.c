/* The interpreter of the generated table. */
#include "vgs_nvml_answer.h"
#include "vgs_log.h"
#include "vgs_nvml.h"
#include "vgs_nvml_init.h"
#include <string.h>

enum { STRUCT_NBYTES_MASK = 0xffffff }; /* a version word is size | version << 24 */

nvmlReturn_t vgs_nvml_done(const char *name, nvmlReturn_t result) {
  if (vgs_trace_on())
    vgs_log(VGS_LOG_TRACE, "%s = %u", name, result);
  return result;
}

static void *pointer(uint64_t word) { return (void *)(uintptr_t)word; }

static void give(struct vgs_nvml_question *question, int64_t value) {
  if (question->count < VGS_NVML_ARGUMENT_MAX)
    question->arguments[question->count++] = value;
}

static nvmlReturn_t check_versioned(const struct vgs_nvml_param *param, const uint32_t *words,
                                    struct vgs_nvml_question *question) {
  if (!words)
    return NVML_ERROR_INVALID_ARGUMENT;
  if (!words[0] || (words[0] != param->versions[0] && words[0] != param->versions[1]))
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  for (unsigned i = 0; i <= param->inputs; i++)
    give(question, words[i]);
  return NVML_SUCCESS;
}

/* Whether a device never answers this function, whatever the arguments: the snapshot says so. */
static bool unanswered(const struct vgs_nvml_question *question) {
  const struct vgs_nvml_question any = {
      .function = question->function, .device = question->device, .count = UINT32_MAX};
  return vgs_nvml_known(&any) == NVML_ERROR_NOT_SUPPORTED;
}

/* Check every argument, and collect the caller's values. A function without an answer reads no struct, as in NVIDIA's
 * library. */
static nvmlReturn_t check(const struct vgs_nvml_function *function, const uint64_t *words,
                          struct vgs_nvml_question *question) {
  nvmlReturn_t result = NVML_SUCCESS;
  for (unsigned i = 0; i < function->param_count && !result; i++) {
    const struct vgs_nvml_param *param = &function->params[i];
    switch (param->role) {
    case VGS_NVML_DEVICE: {
      int index = vgs_nvml_index(pointer(words[i]));
      if (index < 0)
        result = NVML_ERROR_INVALID_ARGUMENT;
      else
        question->device = index;
      break;
    }
    case VGS_NVML_ABSENT:
      result = NVML_ERROR_INVALID_ARGUMENT;
      break;
    case VGS_NVML_ABSENT_VGPU:
      result = NVML_ERROR_NOT_FOUND;
      break;
    case VGS_NVML_GIVEN:
      give(question, (int64_t)words[i]);
      break;
    case VGS_NVML_VERSIONED:
      if (function->source == VGS_NVML_NONE || unanswered(question))
        result = words[i] ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
      else
        result = check_versioned(param, pointer(words[i]), question);
      break;
    case VGS_NVML_ITEMS: /* with capacity 0 the program asks for the number alone */
      if (!words[i] && *(const uint32_t *)pointer(words[i - 1]))
        result = NVML_ERROR_INVALID_ARGUMENT;
      break;
    case VGS_NVML_LENGTH:
    case VGS_NVML_OPTIONAL:
      break;
    default:
      if (!words[i])
        result = NVML_ERROR_INVALID_ARGUMENT;
    }
  }
  return result;
}

static void store_text(struct vgs_unpacker *value, char *into, uint64_t capacity, bool write, nvmlReturn_t *result) {
  uint32_t nbytes;
  const char *text = vgs_unpack_str(value, &nbytes);
  if (!text || memchr(text, 0, nbytes))
    value->failed = true;
  else if (nbytes >= capacity)
    *result = NVML_ERROR_INSUFFICIENT_SIZE;
  else if (write) {
    memcpy(into, text, nbytes);
    into[nbytes] = 0;
  }
}

static void store_bytes(struct vgs_unpacker *value, void *into, uint32_t nbytes, bool write) {
  uint32_t given;
  const uint8_t *bytes = vgs_unpack_bin(value, &given);
  if (!bytes || given != nbytes)
    value->failed = true;
  else if (write)
    memcpy(into, bytes, nbytes);
}

static void store_items(struct vgs_unpacker *value, uint32_t *count, uint8_t *items, uint32_t nbytes, bool write,
                        nvmlReturn_t *result) {
  uint32_t number = vgs_unpack_array(value);
  if (!value->failed && number > *count) {
    *count = number; /* the one result that is written on failure: the capacity that is needed */
    *result = NVML_ERROR_INSUFFICIENT_SIZE;
    return;
  }
  for (uint32_t i = 0; i < number && !value->failed; i++)
    store_bytes(value, write ? items + (size_t)i * nbytes : NULL, nbytes, write);
  if (write)
    *count = number;
}

/* Go through the results, writing them or only checking that all of them fit. */
static nvmlReturn_t store(const struct vgs_nvml_function *function, const uint64_t *words, struct vgs_unpacker value,
                          bool write) {
  nvmlReturn_t result = NVML_SUCCESS;
  uint32_t left = vgs_unpack_array(&value);
  for (unsigned i = 0; i < function->param_count && !result && !value.failed; i++) {
    const struct vgs_nvml_param *param = &function->params[i];
    void *into = pointer(words[i]);
    if (param->role == VGS_NVML_ITEMS || param->role == VGS_NVML_LENGTH || param->role == VGS_NVML_DEVICE ||
        param->role == VGS_NVML_GIVEN)
      continue; /* passed by the caller, or written with the previous parameter */
    if (!left--) {
      value.failed = true;
      break;
    }
    if (param->role == VGS_NVML_WRITTEN) {
      int64_t least = param->nbytes == 4 ? INT32_MIN : INT64_MIN,
              greatest = param->nbytes == 4 ? UINT32_MAX : INT64_MAX;
      int64_t number = vgs_unpack_int(&value, least, greatest);
      if (write)
        memcpy(into, &number, param->nbytes); /* both ends are little-endian */
    } else if (param->role == VGS_NVML_TEXT)
      store_text(&value, into, (uint32_t)words[i + 1], write, &result);
    else if (param->role == VGS_NVML_FIXED_TEXT)
      store_text(&value, into, param->nbytes, write, &result);
    else if (param->role == VGS_NVML_STRUCT)
      store_bytes(&value, into, param->nbytes, write);
    else if (param->role == VGS_NVML_VERSIONED)
      store_bytes(&value, into, *(const uint32_t *)into & STRUCT_NBYTES_MASK, write);
    else
      store_items(&value, into, pointer(words[i + 1]), function->params[i + 1].nbytes, write, &result);
  }
  if (value.failed || (!result && left)) {
    vgs_log(VGS_LOG_ERROR, "%s: vgpud's answer has an unexpected layout", function->name);
    return NVML_ERROR_UNKNOWN;
  }
  return result;
}

static nvmlReturn_t refuse(unsigned index) {
  static bool named[1024];
  const struct vgs_nvml_function *function = &vgs_nvml_functions[index];
  if (function->refusal == NVML_ERROR_NOT_SUPPORTED && index < 1024 &&
      !__atomic_exchange_n(&named[index], true, __ATOMIC_RELAXED))
    vgs_log(VGS_LOG_ERROR, "%s is not implemented: NVML_ERROR_NOT_SUPPORTED", function->name);
  return function->refusal;
}

nvmlReturn_t vgs_nvml_answer(unsigned index, const uint64_t *words) {
  const struct vgs_nvml_function *function = &vgs_nvml_functions[index];
  struct vgs_nvml_question question = {.function = index, .device = VGS_NVML_SYSTEM};
  nvmlReturn_t result = vgs_nvml_enter();
  if (result)
    return vgs_nvml_done(function->name, result);
  result = check(function, words, &question);
  if (!result && function->source == VGS_NVML_NONE)
    result = refuse(index);
  else if (!result) {
    struct vgs_nvml_reply reply;
    vgs_nvml_ask(&question, &reply);
    result = reply.result;
    if (!result && !(result = store(function, words, reply.value, false)))
      result = store(function, words, reply.value, true);
    vgs_nvml_reply_fini(&reply);
  }
  vgs_nvml_leave();
  return vgs_nvml_done(function->name, result);
}
