/* Records out of the description: right most of the time, so that they get far, and hostile in a field or two. */
#include "vgt_fuzz.h"

#include <string.h>

#include "vgw_records.h"
#include "vgw_wire.h"

#include "vgt_grammar.h"

enum { WANT_REPLY = 1, TAIL_MAX = 4096 };

static const uint64_t hostile[] = {0,          1,         7,          8,          64,         255,        4096,
                                   65536,      1u << 20,  0x7fffffff, 0x80000000, 0xffffffff, 1ull << 32, 1ull << 40,
                                   1ull << 47, INT64_MAX, 1ull << 63, -4096ull,   UINT64_MAX};

uint64_t vgt_addresses[4];

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

/* What the opening made is few, so that one record uses what another on the other ring destroys. */
static uint64_t value_of(struct vgt_random *random, const struct vgt_field *field, uint32_t tail_nbytes,
                         uint32_t wild) {
  if (chance(random, wild))
    return hostile_value(random);
  switch ((enum vgt_meaning)field->meaning) {
  case VGT_CREATES: /* a new one; that an id is taken ends the session */
    return VGT_POOL + 1 + vgt_below(random, 200);
  case VGT_HANDLE: /* one that the opening made; others never were, which ends the session */
    return field->kind == VGT_KIND_CONTEXT                         ? 1
           : field->kind == VGT_KIND_STREAM && chance(random, 200) ? 0
                                                                   : 1 + vgt_below(random, VGT_POOL);
  case VGT_DEVICE:
    return chance(random, 950) ? 0 : vgt_below(random, 4);
  case VGT_KERNEL_KIND:
    return 6 + chance(random, 200);
  case VGT_KERNEL:
    return 1 + vgt_below(random, VGT_POOL);
  case VGT_LENGTH:
    return field->kind ? tail_nbytes / field->kind : 0;
  case VGT_SMALL:
    return 1 + vgt_below(random, 3);
  case VGT_ADDRESS:
    if (chance(random, 700))
      return vgt_addresses[vgt_below(random, 4)] + (chance(random, 300) ? (uint64_t)vgt_below(random, 4096) : 0);
    /* fall through */
  default:
    return chance(random, 850) ? vgt_below(random, 5) : hostile_value(random);
  }
}

/* Wild streams are short-lived anyway, so in them what ends most sessions is as likely as all else. */
static const struct vgt_record *choose(struct vgt_random *random, uint32_t wild) {
  for (;;) {
    const struct vgt_record *record = &vgt_records[vgt_below(random, VGT_RECORDS)];
    if (!record->rare || wild >= VGT_WILD || chance(random, record->rare))
      return record;
  }
}

/* One record into `out` of VGT_RECORD_NBYTES; its length. */
static uint32_t make_record(struct vgt_random *random, uint8_t *out, uint32_t wild) {
  static const uint32_t tails[] = {0, 0, 8, 8, 8, 16, 16, 64, 64, 256, TAIL_MAX};
  const struct vgt_record *record = choose(random, wild);
  uint32_t tail = tails[vgt_below(random, sizeof tails / sizeof *tails)], at = sizeof(struct vgw_header);
  memset(out, 0, VGT_RECORD_NBYTES);
  for (uint32_t i = 0; i < record->count; i++) {
    const struct vgt_field *field = &vgt_fields[record->first + i];
    uint64_t value = value_of(random, field, tail, wild);
    if (field->nbytes <= sizeof value)
      memcpy(out + at, &value, field->nbytes);
    else
      for (uint32_t byte = 0; byte < field->nbytes && chance(random, 900); byte += 4)
        out[at + byte] = (uint8_t)vgt_below(random, 4);
    at += field->nbytes;
  }
  at = (at + 7) & ~7u;
  for (uint32_t i = 0; i < tail; i += 4) {
    uint32_t word = !chance(random, wild) ? 1 + vgt_below(random, VGT_POOL) : (uint32_t)hostile_value(random);
    memcpy(out + at + i, &word, 4);
  }
  at += (tail + 7) & ~7u;
  struct vgw_header header = {.length = at, .opcode = record->opcode, .sequence = vgt_below(random, 1000)};
  header.flags = record->waits && chance(random, 100) ? WANT_REPLY : 0;
  header.context = chance(random, wild) ? vgt_below(random, 4) : record->context;
  memcpy(out, &header, sizeof header);
  if (chance(random, wild))
    out[vgt_below(random, at)] ^= (uint8_t)(1u << vgt_below(random, 8));
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

static void append_fresh(struct vgt_random *random, struct vgt_input *input, uint32_t wild) {
  static _Thread_local uint8_t record[VGT_RECORD_NBYTES];
  append(input, channel_of(random), record, make_record(random, record, wild));
}

void vgt_make(struct vgt_random *random, struct vgt_input *input, uint32_t steps, uint32_t wild) {
  input->nbytes = input->steps = 0;
  for (uint32_t i = 0; i < steps; i++)
    append_fresh(random, input, wild);
}

/* The step at `at`, and where the next one begins. */
static const struct vgt_step *step_at(const struct vgt_input *input, uint32_t at, uint32_t *next) {
  const struct vgt_step *step = (const struct vgt_step *)(input->data + at);
  *next = at + (uint32_t)sizeof *step + step->nbytes;
  return step;
}

void vgt_mutate(struct vgt_random *random, struct vgt_input *input, const struct vgt_input *other) {
  static struct vgt_input made;
  static uint8_t record[VGT_RECORD_NBYTES];
  uint32_t rate = 1 + vgt_below(random, 100), next, from = 0;
  made.nbytes = made.steps = 0;
  for (uint32_t at = 0; at < input->nbytes; at = next) {
    const struct vgt_step *step = step_at(input, at, &next);
    const uint8_t *bytes = (const uint8_t *)(step + 1);
    if (!chance(random, rate)) {
      append(&made, step->channel, bytes, step->nbytes);
      continue;
    }
    switch (vgt_below(random, 6)) {
    case 0: /* without it */
      break;
    case 1: /* twice, on both rings */
      append(&made, 0, bytes, step->nbytes);
      append(&made, 1, bytes, step->nbytes);
      break;
    case 2:
      append(&made, step->channel, bytes, step->nbytes);
      append_fresh(random, &made, chance(random, 500) ? 0 : VGT_WILD);
      break;
    case 3: /* elsewhere */
      append(&made, channel_of(random), bytes, step->nbytes);
      break;
    case 4: { /* another word in it, not of the header */
      uint32_t word = chance(random, 500) ? vgt_below(random, VGT_POOL) : (uint32_t)hostile_value(random);
      memcpy(record, bytes, step->nbytes);
      if (step->nbytes >= 24)
        memcpy(record + 16 + 4 * vgt_below(random, (step->nbytes - 16) / 4), &word, 4);
      append(&made, step->channel, record, step->nbytes);
      break;
    }
    default: { /* a stretch of the other one */
      uint32_t count = 1 + vgt_below(random, 20), after;
      for (uint32_t i = 0; i < count && from < other->nbytes; i++, from = after) {
        const struct vgt_step *taken = step_at(other, from, &after);
        append(&made, taken->channel, (const uint8_t *)(taken + 1), taken->nbytes);
      }
    }
    }
  }
  *input = made;
}

size_t vgt_opening(uint8_t *out, size_t capacity) {
  size_t nbytes = sizeof vgt_opening_records <= capacity ? sizeof vgt_opening_records : 0;
  memcpy(out, vgt_opening_records, nbytes);
  return nbytes;
}
