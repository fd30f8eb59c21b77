/* Records made from the description: mostly valid, so that they are executed, with a hostile field or two. */
#include "vgt_fuzz.h"

#include <string.h>

#include "vgw_device_memory.h"
#include "vgw_pinned.h"
#include "vgw_records.h"
#include "vgw_wire.h"

#include "vgt_grammar.h"

enum { PART_MAX = 2048, PARTS_MAX = 4, PAGE = VGT_PAGE };
enum { RENAMED_MAX = 1024, IMAGE_NBYTES = 3 };
enum { OFFERED_NBYTES = 16 }; /* of count_of's lengths, so that some uploads become complete */
enum { ATTRIBUTE_NBYTES = sizeof(CUlaunchAttribute), ATTRIBUTES = 20 }; /* a few more attribute ids than exist */

static const uint64_t hostile[] = {0,          1,         7,          8,          64,         255,        4096,
                                   65536,      1u << 20,  0x7fffffff, 0x80000000, 0xffffffff, 1ull << 32, 1ull << 40,
                                   1ull << 47, INT64_MAX, 1ull << 63, -4096ull,   UINT64_MAX};

uint64_t vgt_addresses[4], vgt_conditions[2];

_Static_assert((int)VGT_POOL == (int)VGT_LAST_OBJECT, "the opening's objects");

uint64_t vgt_next(struct vgt_random *random) {
  random->state ^= random->state >> 12;
  random->state ^= random->state << 25;
  random->state ^= random->state >> 27;
  return random->state * 0x2545f4914f6cdd1dull;
}

uint32_t vgt_below(struct vgt_random *random, uint32_t end) {
  return end ? (uint32_t)(vgt_next(random) >> 32) % end : 0;
}

static bool chance(struct vgt_random *random, uint32_t in_a_thousand) {
  return vgt_below(random, 1000) < in_a_thousand;
}

static uint64_t hostile_value(struct vgt_random *random) {
  return chance(random, 500) ? hostile[vgt_below(random, sizeof hostile / sizeof *hostile)] : vgt_next(random);
}

/* How many objects of each kind an input has created on each channel so far, and the first of them that its later
 * records may name. A channel executes its records in order. */
struct made {
  uint16_t count[VGT_CHANNELS][VGT_KINDS], first[VGT_CHANNELS][VGT_KINDS];
};

static uint64_t new_id(struct made *made, uint32_t channel, uint32_t kind) {
  return VGT_POOL + 1 + VGT_CHANNELS * made->count[channel][kind]++ + channel;
}

/* The id of an existing object; 0: none. The opening makes few, so one ring often destroys what the other one uses. */
static uint64_t old_id(struct vgt_random *random, const struct made *made, uint32_t channel, uint32_t kind) {
  uint32_t first = made->first[channel][kind], count = made->count[channel][kind] - first;
  bool pooled = kind <= VGT_POOLED;
  if (kind == VGT_KIND_CONTEXT) /* the opening makes one; a header may name others (damage) */
    return 1;
  if (kind == VGT_KIND_STREAM && chance(random, 200))
    return 0;
  if (count && (!pooled || chance(random, 10)))
    return VGT_POOL + 1 + VGT_CHANNELS * (first + vgt_below(random, count)) + channel;
  return pooled ? 1 + vgt_below(random, VGT_POOL) : 0;
}

static bool makes(const struct made *made, uint32_t channel, uint32_t kind) {
  return made->count[channel][kind] > made->first[channel][kind];
}

static uint64_t value_of(struct vgt_random *random, const struct vgt_field *field, const uint32_t *counts,
                         struct made *made, uint32_t channel) {
  switch ((enum vgt_meaning)field->meaning) {
  case VGT_CREATES:
    return new_id(made, channel, field->of);
  case VGT_HANDLE:
    return old_id(random, made, channel, field->of);
  case VGT_DEVICE:
    return chance(random, 950) ? 0 : vgt_below(random, 4);
  case VGT_KERNEL_KIND:
    return VGW_KIND_FUNCTION + chance(random, 200);
  case VGT_CONTAINER_KIND:
    return VGW_KIND_MODULE + chance(random, 500);
  case VGT_KERNEL:
    return 1 + vgt_below(random, VGT_POOL);
  case VGT_LENGTH:
    return field->of == VGT_SHORT ? vgt_below(random, 8) : field->of ? counts[field->of - 1] : counts[PARTS_MAX];
  case VGT_SMALL:
    return 1 + vgt_below(random, 3);
  case VGT_FORM:
    return 1 + vgt_below(random, 4);
  case VGT_BOOL:
    return vgt_below(random, 2);
  case VGT_RESERVED:
    return VGW_PINNED_BEGIN + (uint64_t)PAGE * VGT_RESERVED_PAGE + 4 * vgt_below(random, VGT_RESERVED_PAGES * PAGE / 4);
  case VGT_MARKED:
    return (chance(random, 200) ? VGW_CALLBACK_OF_GRAPH | VGW_CALLBACK_INTERNAL | VGW_CALLBACK_WHOLE_COPY
                                : VGW_CALLBACK_OF_GRAPH) |
           (1 + vgt_below(random, 3));
  case VGT_ONE:
    return 1;
  case VGT_ZERO:
    return 0;
  case VGT_WINDOW:
    return VGW_PINNED_BEGIN + (uint64_t)PAGE * vgt_below(random, 16);
  case VGT_PAGES:
    return (uint64_t)PAGE * (1 + vgt_below(random, 4));
  case VGT_TENSOR_MAP_NBYTES:
    return sizeof(CUtensorMap);
  case VGT_CONDITION:
    return vgt_conditions[vgt_below(random, 2)];
  case VGT_IMAGE:
    return makes(made, channel, field->of) && chance(random, 300) ? old_id(random, made, channel, field->of)
                                                                  : new_id(made, channel, field->of);
  case VGT_OFFERED:
    return OFFERED_NBYTES;
  case VGT_ADDRESS:
    if (chance(random, 700))
      return vgt_addresses[vgt_below(random, 4)] + (chance(random, 300) ? (uint64_t)vgt_below(random, 4096) : 0);
    return vgt_below(random, 65);
  default:
    return chance(random, 850) ? vgt_below(random, 5) : hostile_value(random);
  }
}

/* Whether a record needs handles that only earlier records make: if those have failed, it ends the session. */
static bool is_special(const struct vgt_record *record) {
  for (uint32_t i = 0; i < record->count; i++) {
    const struct vgt_field *field = &vgt_fields[record->first + i];
    if (field->meaning == VGT_HANDLE && field->of > VGT_POOLED)
      return true;
  }
  return false;
}

/* Whether, for each handle that the record needs, this channel has made an object of the kind. */
static bool is_possible(const struct vgt_record *record, const struct made *made, uint32_t channel) {
  for (uint32_t i = 0; i < record->count; i++) {
    const struct vgt_field *field = &vgt_fields[record->first + i];
    if (field->meaning == VGT_HANDLE && field->of > VGT_POOLED && !makes(made, channel, field->of))
      return false;
  }
  return true;
}

static const struct vgt_record *choose(struct vgt_random *random, const struct made *made, uint32_t channel) {
  for (;;) {
    const struct vgt_record *record = &vgt_records[vgt_below(random, VGT_RECORDS)];
    bool fits = channel == VGT_SOCKET || !record->on_socket;
    fits = fits && (!is_special(record) || chance(random, 50));
    if (fits && (!record->rare || chance(random, record->rare * 4u)) && is_possible(record, made, channel))
      return record;
  }
}

enum { PAGES_NBYTES = 16 }; /* of a struct vgw_host_pages */

static void fill_part(struct vgt_random *random, const struct vgt_part *part, uint8_t *out, uint32_t count,
                      struct made *made, uint32_t channel) {
  for (uint32_t i = 0; part->content == VGT_PART_GRAPHS && i + 4 <= count; i += 4)
    memcpy(out + i, &(uint32_t){(uint32_t)new_id(made, channel, VGT_KIND_GRAPH)}, 4);
  if (part->content == VGT_PART_GRAPHS)
    return;
  for (uint32_t i = 0; part->content == VGT_PART_PAGES && i + PAGES_NBYTES <= count; i += PAGES_NBYTES) {
    uint64_t page = vgt_below(random, chance(random, 900) ? 2 : 16), pages = 1 + (page == 0 && chance(random, 500));
    memcpy(out + i, (uint64_t[]){VGW_PINNED_BEGIN + PAGE * page, PAGE * pages}, PAGES_NBYTES);
  }
  if (part->content == VGT_PART_PAGES)
    return;
  if (part->content == VGT_PART_NAME && chance(random, 800)) {
    memcpy(out, vgt_kernel_name, count < sizeof vgt_kernel_name ? count : sizeof vgt_kernel_name);
    return;
  }
  if (part->content == VGT_PART_ATTRIBUTES) {
    memset(out, 0, count);
    for (uint32_t i = 0; i + ATTRIBUTE_NBYTES <= count; i += ATTRIBUTE_NBYTES) {
      uint32_t id = vgt_below(random, ATTRIBUTES), event = (uint32_t)old_id(random, made, channel, VGT_KIND_EVENT);
      memcpy(out + i, &id, sizeof id);
      memcpy(out + i + 8, &event, sizeof event); /* the value: an event's id, or a small number */
    }
    return;
  }
  for (uint32_t i = 0; i < count * part->nbytes / 4; i++) {
    uint32_t word = part->content == VGT_PART_NODES ? (uint32_t)old_id(random, made, channel, VGT_KIND_GRAPH_NODE)
                    : chance(random, 600)           ? vgt_below(random, 5)
                                                    : (uint32_t)hostile_value(random);
    uint64_t address = vgt_addresses[vgt_below(random, 4)];
    if (part->content == VGT_PART_BYTES && i % 2 == 0 && chance(random, 300))
      memcpy(out + 4ull * i, &address, sizeof address <= count * part->nbytes - 4ull * i ? sizeof address : 4), i++;
    else
      memcpy(out + 4ull * i, &word, sizeof word);
  }
}

static uint32_t count_of(struct vgt_random *random, const struct vgt_part *part) {
  static const uint32_t bytes[] = {0, 8, 8, 16, 16, 24, 64, 256, PART_MAX};
  uint32_t most = PART_MAX / part->nbytes < part->most ? PART_MAX / part->nbytes : part->most, count = 0;
  if (part->content == VGT_PART_ROWS)
    count = bytes[1 + vgt_below(random, sizeof bytes / sizeof *bytes - 1)];
  else if (part->content == VGT_PART_NAME)
    count = chance(random, 900) ? sizeof vgt_kernel_name - 1 : vgt_below(random, 32);
  else if (part->content == VGT_PART_ATTRIBUTES) /* many let the call fail; a wrong length ends the session */
    count = chance(random, 5) ? 8 : chance(random, 700) ? 0 : ATTRIBUTE_NBYTES * (1 + vgt_below(random, 2));
  else if (part->content == VGT_PART_WHOLE)
    count = most;
  else if (part->content == VGT_PART_PAGES)
    count = PAGES_NBYTES * vgt_below(random, 4);
  else if (part->content == VGT_PART_GRAPHS)
    count = chance(random, 5) ? 6 : 4 * (1 + vgt_below(random, 2));
  else
    count = part->nbytes == 1 ? bytes[vgt_below(random, sizeof bytes / sizeof *bytes)] : vgt_below(random, 4);
  return count < most ? count : most;
}

/* Make one thing in a record wrong: a field, a bit (perhaps of the length), or the context. */
static void damage(struct vgt_random *random, const struct vgt_record *record, uint8_t *out, uint32_t nbytes) {
  uint64_t value = hostile_value(random);
  uint32_t at = sizeof(struct vgw_header), chosen = vgt_below(random, record->count + 2);
  for (uint32_t i = 0; i < record->count; i++) {
    const struct vgt_field *field = &vgt_fields[record->first + i];
    if (i == chosen)
      memcpy(out + at, &value, field->nbytes < sizeof value ? field->nbytes : sizeof value);
    at += field->nbytes;
  }
  if (chosen == record->count)
    out[vgt_below(random, nbytes)] ^= (uint8_t)(1u << vgt_below(random, 8));
  if (chosen == record->count + 1u)
    ((struct vgw_header *)out)->context = vgt_below(random, 4);
}

/* Write one record to `out`, which has VGT_RECORD_NBYTES; return the record's length. */
static uint32_t make_record(struct vgt_random *random, uint8_t *out, uint32_t wild, struct made *made,
                            uint32_t channel) {
  const struct vgt_record *record = choose(random, made, channel);
  uint32_t counts[PARTS_MAX + 1] = {[PARTS_MAX] = 1u << vgt_below(random, 13)}, at = sizeof(struct vgw_header);
  memset(out, 0, VGT_RECORD_NBYTES);
  for (uint32_t i = 0; i < record->part_count && i < PARTS_MAX; i++) {
    const struct vgt_part *part = &vgt_parts[record->first_part + i];
    counts[i] = part->same < i ? counts[part->same] : count_of(random, part);
  }
  for (uint32_t i = 0; i < record->count; i++) {
    const struct vgt_field *field = &vgt_fields[record->first + i];
    uint64_t value = value_of(random, field, counts, made, channel);
    if (field->nbytes <= sizeof value)
      memcpy(out + at, &value, field->nbytes);
    else
      for (uint32_t byte = 0; byte < field->nbytes && chance(random, 900); byte += 4)
        out[at + byte] = (uint8_t)vgt_below(random, 4);
    at += field->nbytes;
  }
  at = (at + 7) & ~7u;
  for (uint32_t i = 0; i < record->part_count && i < PARTS_MAX; i++) {
    const struct vgt_part *part = &vgt_parts[record->first_part + i];
    if (at + counts[i] * part->nbytes + 8 > VGT_RECORD_NBYTES)
      break;
    fill_part(random, part, out + at, counts[i], made, channel);
    at += (counts[i] * part->nbytes + 7) & ~7u;
  }
  struct vgw_header header = {.length = at, .opcode = record->opcode, .sequence = vgt_below(random, 1000)};
  header.flags =
      (uint16_t)((record->waits && chance(random, 100) ? VGW_WANT_REPLY : 0) | (record->has_fd ? VGW_HAS_FD : 0));
  if (header.sequence % 2)
    header.flags |= VGW_SHORT_REPLY;
  header.context = record->context;
  if (chance(random, 30) && at + sizeof(uint64_t) <= VGT_RECORD_NBYTES) { /* a number between the header and the rest */
    memmove(out + sizeof header + sizeof(uint64_t), out + sizeof header, at - sizeof header);
    memcpy(out + sizeof header, &(uint64_t){1 + vgt_below(random, 1000)}, sizeof(uint64_t));
    header.flags |= VGW_CORRELATED;
    header.length = at += (uint32_t)sizeof(uint64_t);
  }
  memcpy(out, &header, sizeof header);
  if (chance(random, wild))
    damage(random, record, out, at);
  return at;
}

static bool append(struct vgt_input *input, uint32_t channel, const uint8_t *record, uint32_t nbytes) {
  struct vgt_step step = {channel, nbytes};
  if (input->nbytes + sizeof step + nbytes > VGT_INPUT_NBYTES)
    return false;
  memcpy(input->data + input->nbytes, &step, sizeof step);
  memcpy(input->data + input->nbytes + sizeof step, record, nbytes);
  input->nbytes += (uint32_t)sizeof step + nbytes;
  input->steps++;
  return true;
}

static uint32_t channel_of(struct vgt_random *random) {
  return chance(random, 50) ? VGT_SOCKET : vgt_below(random, VGT_SOCKET);
}

static void append_fresh(struct vgt_random *random, struct vgt_input *input, uint32_t wild, struct made *made) {
  static _Thread_local uint8_t record[VGT_RECORD_NBYTES];
  uint32_t channel = channel_of(random);
  append(input, channel, record, make_record(random, record, wild, made, channel));
}

void vgt_make(struct vgt_random *random, struct vgt_input *input, uint32_t steps, uint32_t wild) {
  struct made made = {0};
  input->nbytes = input->steps = input->walk = 0;
  for (uint32_t i = 0; i < steps; i++)
    append_fresh(random, input, wild, &made);
}

/* The step at `at`; `next`: where the next step begins. */
static const struct vgt_step *step_at(const struct vgt_input *input, uint32_t at, uint32_t *next) {
  const struct vgt_step *step = (const struct vgt_step *)(input->data + at);
  *next = at + (uint32_t)sizeof *step + step->nbytes;
  return step;
}

/* Change the ids in a record that was made for another place: ids that it gives to new objects become new ones, and
 * objects that another place's records make become objects of the opening. False: there is none of the kind. */
static bool adopt(struct vgt_random *random, uint8_t *bytes, uint32_t nbytes, struct made *made, uint32_t channel) {
  struct vgw_header header;
  memcpy(&header, bytes, sizeof header);
  const struct vgt_record *record = vgt_records;
  while (record < vgt_records + VGT_RECORDS && record->opcode != header.opcode)
    record++;
  uint32_t at = sizeof header + (header.flags & VGW_CORRELATED ? (uint32_t)sizeof(uint64_t) : 0), id;
  for (uint32_t i = 0; record < vgt_records + VGT_RECORDS && i < record->count; i++) {
    const struct vgt_field *field = &vgt_fields[record->first + i];
    if (at + sizeof id > nbytes)
      break;
    memcpy(&id, bytes + at, sizeof id);
    if (field->meaning == VGT_CREATES && field->of)
      id = (uint32_t)new_id(made, channel, field->of);
    else if (field->meaning == VGT_HANDLE && id > VGT_POOL && field->of > VGT_POOLED)
      return false;
    else if (field->meaning == VGT_HANDLE && id > VGT_POOL)
      id = 1 + vgt_below(random, VGT_POOL);
    if (field->meaning == VGT_CREATES || field->meaning == VGT_HANDLE)
      memcpy(bytes + at, &id, sizeof id);
    at += field->nbytes;
  }
  return true;
}

static void append_adopted(struct vgt_random *random, struct vgt_input *input, const struct vgt_step *step,
                           struct made *made, uint32_t channel) {
  static uint8_t record[VGT_INPUT_NBYTES];
  memcpy(record, step + 1, step->nbytes);
  if (adopt(random, record, step->nbytes, made, channel))
    append(input, channel, record, step->nbytes);
}

void vgt_mutate(struct vgt_random *random, struct vgt_input *input, const struct vgt_input *other) {
  static struct vgt_input made;
  static uint8_t record[VGT_RECORD_NBYTES];
  uint32_t rate = 1 + vgt_below(random, 20), next, from = 0;
  struct made fresh; /* high counts, for ids that no record of a fresh input has */
  for (uint32_t i = 0; i < sizeof fresh.count / sizeof fresh.count[0][0]; i++)
    (&fresh.count[0][0])[i] = (&fresh.first[0][0])[i] = (uint16_t)(1000 + vgt_below(random, 1000));
  made.nbytes = made.steps = 0;
  for (uint32_t at = 0; at < input->nbytes; at = next) {
    const struct vgt_step *step = step_at(input, at, &next);
    const uint8_t *bytes = (const uint8_t *)(step + 1);
    if (!chance(random, rate)) {
      append(&made, step->channel, bytes, step->nbytes);
      continue;
    }
    switch (vgt_below(random, 6)) {
    case 0: /* remove it */
      break;
    case 1: /* duplicate it, on the other ring */
      append(&made, step->channel, bytes, step->nbytes);
      append_adopted(random, &made, step, &fresh, step->channel ^ (step->channel < VGT_SOCKET));
      break;
    case 2:
      append(&made, step->channel, bytes, step->nbytes);
      append_fresh(random, &made, chance(random, 500) ? 0 : VGT_WILD, &fresh);
      break;
    case 3: /* move it to another channel */
      append(&made, channel_of(random), bytes, step->nbytes);
      break;
    case 4: { /* change one word of it, not in the header */
      uint32_t word = chance(random, 500) ? vgt_below(random, VGT_POOL) : (uint32_t)hostile_value(random);
      memcpy(record, bytes, step->nbytes);
      if (step->nbytes >= 24)
        memcpy(record + 16 + 4 * vgt_below(random, (step->nbytes - 16) / 4), &word, 4);
      append(&made, step->channel, record, step->nbytes);
      break;
    }
    default: { /* replace it by some records of `other` */
      uint32_t count = 1 + vgt_below(random, 20), after;
      for (uint32_t i = 0; i < count && from < other->nbytes; i++, from = after) {
        const struct vgt_step *taken = step_at(other, from, &after);
        append_adopted(random, &made, taken, &fresh, taken->channel);
      }
    }
    }
  }
  *input = made;
}

/* Ids that a recorded session has given to objects, by kind, and those that the input gives to them. */
struct renamed {
  uint32_t ids[VGT_KINDS][RENAMED_MAX]; /* 0: none */
};

static uint64_t renamed_value(struct vgt_random *random, const struct vgt_field *field, uint64_t value,
                              struct renamed *renamed, struct made *made, uint32_t channel) {
  uint32_t *id = &renamed->ids[field->of < VGT_KINDS ? field->of : 0][value % RENAMED_MAX];
  bool missing = field->of && field->of <= VGT_POOLED && !*id; /* not recorded, or in an earlier part */
  switch ((enum vgt_meaning)field->meaning) {
  case VGT_CREATES:
  case VGT_IMAGE:
    return field->of ? *id = (uint32_t)new_id(made, channel, field->of) : value;
  case VGT_HANDLE:
    return value && missing ? 1 + vgt_below(random, VGT_POOL) : value ? *id : 0;
  case VGT_KERNEL: /* the recorded images have kernels of other names */
    return 1 + vgt_below(random, VGT_POOL);
  case VGT_WINDOW:
  case VGT_RESERVED:
  case VGT_CONDITION:
    return value_of(random, field, (const uint32_t[PARTS_MAX + 1]){0}, made, channel);
  case VGT_ADDRESS:
    return value < VGW_DEVICE_MEMORY_BEGIN ? value : vgt_addresses[value / PAGE % 3] + value % 64;
  default:
    return value;
  }
}

void vgt_adopt(struct vgt_random *random, struct vgt_input *input) {
  static struct renamed renamed; /* the program that calls this has one thread that makes inputs */
  struct made made = {0};
  uint32_t next;
  memset(&renamed, 0, sizeof renamed);
  for (uint32_t start = 0; start < input->nbytes; start = next) {
    const struct vgt_step *step = step_at(input, start, &next);
    uint8_t *bytes = input->data + start + sizeof *step;
    struct vgw_header header;
    memcpy(&header, bytes, sizeof header);
    const struct vgt_record *record = vgt_records;
    while (record < vgt_records + VGT_RECORDS && record->opcode != header.opcode)
      record++;
    uint32_t at = sizeof header + (header.flags & VGW_CORRELATED ? (uint32_t)sizeof(uint64_t) : 0);
    for (uint32_t i = 0; record < vgt_records + VGT_RECORDS && i < record->count; i++) {
      const struct vgt_field *field = &vgt_fields[record->first + i];
      uint64_t value = 0;
      if (at + field->nbytes > step->nbytes)
        break;
      if (field->nbytes <= sizeof value) {
        memcpy(&value, bytes + at, field->nbytes);
        value = renamed_value(random, field, value, &renamed, &made, step->channel % VGT_CHANNELS);
        memcpy(bytes + at, &value, field->nbytes);
      }
      at += field->nbytes;
    }
    at = (at + 7) & ~7u;
    if (header.opcode == VGW_OP_vgpuImageWrite && at + IMAGE_NBYTES <= step->nbytes)
      memcpy(bytes + at, "vgt", IMAGE_NBYTES); /* an image that the kernels of vgt_kernels.c are in */
  }
}

size_t vgt_opening(uint8_t *out, size_t capacity) {
  size_t nbytes = sizeof vgt_opening_records <= capacity ? sizeof vgt_opening_records : 0;
  memcpy(out, vgt_opening_records, nbytes);
  return nbytes;
}
