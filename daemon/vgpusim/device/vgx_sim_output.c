/* What kernels print: device printf and assert messages, kept per context until the executor takes them.
 *
 * As on the device, the buffer is bounded (CU_LIMIT_PRINTF_FIFO_SIZE) and the oldest messages are overwritten when it
 * is full; here whole messages go. What a destroyed context printed can still be taken.
 *
 * Formatting reads memory the kernel named: those reads happen with no lock held and outside the service bracket, so a
 * bad pointer is the kernel's fault (700). Locking: `output_lock`, a leaf; contexts are only ever added to their list.
 */
#include "vgx_sim_output.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vgx_sim_fault.h"
#include "vgx_sim_runtime.h"

#define MESSAGE_NBYTES_MAX 8192u
#define SPECIFIER_NBYTES 32u

struct vgx_sim_message {
  struct vgx_sim_message *next;
  uint32_t nbytes, taken;
  char text[];
};

static pthread_mutex_t output_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t pending_nbytes;

static void remove_first(struct vgx_sim_output *o) {
  struct vgx_sim_message *m = o->first;
  o->first = m->next;
  if (!o->first)
    o->last = NULL;
  o->nbytes -= m->nbytes - m->taken;
  pending_nbytes -= m->nbytes - m->taken;
  free(m);
}

void vgx_sim_output_append(CUcontext ctx, const char *text, uint64_t nbytes) {
  vgx_sim_lock();
  uint64_t limit = ctx->limits[CU_LIMIT_PRINTF_FIFO_SIZE];
  vgx_sim_unlock();
  if (nbytes == 0 || nbytes > limit)
    return;
  struct vgx_sim_message *m = malloc(sizeof *m + nbytes);
  if (!m)
    return; /* as if it had been overwritten */
  *m = (struct vgx_sim_message){.nbytes = (uint32_t)nbytes};
  memcpy(m->text, text, nbytes);
  pthread_mutex_lock(&output_lock);
  struct vgx_sim_output *o = &ctx->output;
  while (o->first && o->nbytes + nbytes > limit)
    remove_first(o);
  *(o->last ? &o->last->next : &o->first) = m;
  o->last = m;
  o->nbytes += nbytes;
  pending_nbytes += nbytes;
  pthread_mutex_unlock(&output_lock);
}

uint64_t vgx_sim_take_output(char *text, uint64_t capacity) {
  uint64_t used = 0;
  vgx_sim_lock();
  CUcontext first = vgx_sim_contexts();
  vgx_sim_unlock();
  pthread_mutex_lock(&output_lock);
  for (CUcontext ctx = first; ctx; ctx = ctx->next) {
    struct vgx_sim_output *o = &ctx->output;
    while (o->first && used < capacity) {
      struct vgx_sim_message *m = o->first;
      uint64_t left = m->nbytes - m->taken, n = left < capacity - used ? left : capacity - used;
      memcpy(text + used, m->text + m->taken, n);
      used += n;
      m->taken += (uint32_t)n;
      o->nbytes -= n;
      pending_nbytes -= n;
      if (m->taken == m->nbytes)
        remove_first(o);
    }
  }
  pthread_mutex_unlock(&output_lock);
  return used;
}

bool vgx_sim_output_pending(void) {
  pthread_mutex_lock(&output_lock);
  bool pending = pending_nbytes != 0;
  pthread_mutex_unlock(&output_lock);
  return pending;
}

/* Text under construction, and the reader of the packed arguments. */
struct formatter {
  char text[MESSAGE_NBYTES_MAX];
  uint32_t used;
  const uint8_t *args;
  uint64_t offset;
};

static uint64_t next_argument(struct formatter *f, uint32_t nbytes) {
  f->offset = (f->offset + nbytes - 1) / nbytes * nbytes; /* naturally aligned */
  uint64_t value = 0;
  memcpy(&value, vgx_sim_reach((uint64_t)f->args + f->offset), nbytes);
  f->offset += nbytes;
  return value;
}

static void put(struct formatter *f, const char *text, size_t nbytes) {
  if (nbytes > MESSAGE_NBYTES_MAX - f->used)
    nbytes = MESSAGE_NBYTES_MAX - f->used;
  memcpy(f->text + f->used, text, nbytes);
  f->used += (uint32_t)nbytes;
}

/* One conversion: `spec` is a whole "%...c" of the kernel's format with its stars resolved and its length modifier last
 * but one. */
static void convert(struct formatter *f, const char *spec, char kind, bool is_long) {
  char piece[1024];
  int n = 0;
  if (kind == 's') {
    char string[sizeof piece]; /* read it here, outside the bracket: it may fault */
    const char *from = (const char *)next_argument(f, 8);
    size_t length = 0;
    while (from && length < sizeof string - 1 && *(const char *)vgx_sim_reach((uint64_t)from + length))
      string[length] = from[length], length++;
    string[length] = 0;
    vgx_sim_service_begin();
    n = snprintf(piece, sizeof piece, spec, from ? string : "(null)");
  } else if (strchr("eEfFgGaA", kind)) {
    uint64_t bits = next_argument(f, 8); /* float is promoted */
    double value;
    memcpy(&value, &bits, 8);
    vgx_sim_service_begin();
    n = snprintf(piece, sizeof piece, spec, value);
  } else if (kind == 'p') {
    uint64_t value = next_argument(f, 8);
    vgx_sim_service_begin();
    n = snprintf(piece, sizeof piece, spec, (void *)value);
  } else {
    uint64_t value = next_argument(f, is_long ? 8 : 4);
    vgx_sim_service_begin();
    if (kind == 'c')
      n = snprintf(piece, sizeof piece, spec, (int)value);
    else /* the specifier says ll: sign-extend what is 32 bits wide */
      n = snprintf(piece, sizeof piece, spec,
                   is_long              ? (long long)value
                   : strchr("di", kind) ? (long long)(int32_t)value
                                        : (long long)(uint32_t)value);
  }
  vgx_sim_service_end();
  if (n > 0)
    put(f, piece, (size_t)n < sizeof piece ? (size_t)n : sizeof piece - 1);
}

/* Append a decimal number or a '*' argument to `spec`; return the rest of the format. */
static const char *take_number(struct formatter *f, const char *at, char *spec, uint32_t *length) {
  if (*at == '*') {
    int32_t value = (int32_t)next_argument(f, 4);
    value = value > 512 ? 512 : value < -512 ? -512 : value; /* bound the length of the text that a width asks for */
    *length += (uint32_t)snprintf(spec + *length, SPECIFIER_NBYTES - *length, "%d", value);
    return at + 1;
  }
  uint32_t digits = 0;
  for (; isdigit((unsigned char)*at); at++)
    if (digits++ < 3)
      spec[(*length)++] = *at;
  return at;
}

/* A copy of the kernel's format, which other threads may change while it is read. */
static void copy_format(char *to, const char *from) {
  size_t length = 0;
  for (; length < MESSAGE_NBYTES_MAX - 1; length++) {
    to[length] = *(const volatile char *)vgx_sim_reach((uint64_t)from + length);
    if (!to[length])
      return;
  }
  to[length] = 0;
}

int32_t vgx_sim_output_format(CUcontext ctx, const char *named, const uint8_t *args) {
  struct formatter f;
  char format[MESSAGE_NBYTES_MAX] = {0};
  copy_format(format, named);
  f.used = 0;
  f.args = args;
  f.offset = 0;
  int32_t count = 0;
  for (const char *at = format; *at && f.used < MESSAGE_NBYTES_MAX;) {
    if (*at != '%') {
      put(&f, at++, 1);
      continue;
    }
    if (at[1] == '%') {
      put(&f, "%", 1);
      at += 2;
      continue;
    }
    const char *start = at++;
    char spec[SPECIFIER_NBYTES] = "%";
    uint32_t length = 1;
    for (; *at && strchr("-+ #0", *at); at++)
      if (length < 8)
        spec[length++] = *at;
    at = take_number(&f, at, spec, &length);
    if (*at == '.') {
      spec[length++] = '.';
      at = take_number(&f, at + 1, spec, &length);
    }
    bool is_long = false; /* long is 64 bits wide here, as on every 64-bit Unix */
    for (; *at && strchr("hlzjtL", *at); at++)
      is_long |= *at != 'h' && *at != 'L';
    if (!*at || !strchr("diouxXcsfFeEgGaAp", *at)) { /* printed as it stands, as CUDA does */
      put(&f, start, (size_t)(at - start));
      continue;
    }
    char kind = *at++;
    if (strchr("diouxX", kind))
      spec[length++] = 'l', spec[length++] = 'l';
    spec[length++] = kind;
    spec[length] = 0;
    convert(&f, spec, kind, is_long);
    count++;
  }
  vgx_sim_service_begin();
  vgx_sim_output_append(ctx, f.text, f.used);
  vgx_sim_service_end();
  return count; /* CUDA's printf returns the number of arguments parsed */
}
