#include "vgx_host_quota.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include "vgw_ledger.h"
#include "vgx_meter.h"
#include "vgx_reason.h"
#include "vgx_session.h"

static void write_locked(struct vgx_session *s) {
  struct vgw_ledger *ledger = s->options->ledger;
  if (ledger)
    __atomic_store_n(&ledger->used[s->options->ledger_row][VGW_LEDGER_HOST], s->host_nbytes, __ATOMIC_SEQ_CST);
}

static uint64_t limit_of(const struct vgx_session *s) {
  return s->options->host_limit_nbytes ? s->options->host_limit_nbytes : INT64_MAX;
}

bool vgx_host_count(struct vgx_session *s, uint64_t nbytes, bool anyway) {
  const struct vgx_serve_options *options = s->options;
  uint64_t limit = limit_of(s);
  pthread_mutex_lock(&s->table_lock);
  bool fits = anyway || (nbytes <= limit && s->host_nbytes <= limit - nbytes);
  if (fits) {
    s->host_nbytes += nbytes;
    write_locked(s);
    int64_t used = vgw_ledger_capped(s->host_nbytes);
    if (options->ledger)
      vgw_ledger_sum(options->ledger, VGW_LEDGER_HOST, options->ledger_row, &used);
    fits = anyway || (uint64_t)used <= limit;
    if (!fits) {
      s->host_nbytes -= nbytes;
      write_locked(s);
    }
  }
  pthread_mutex_unlock(&s->table_lock);
  return fits;
}

bool vgx_host_reserve(struct vgx_session *s, uint64_t nbytes) {
  const struct vgx_serve_options *options = s->options;
  bool fits = vgx_host_count(s, nbytes, false);
  if (!fits)
    atomic_fetch_add_explicit(&vgx_meter->refused[VGW_QUOTA_NONE], 1, memory_order_relaxed);
  if (!fits)
    vgx_reason(s, CUDA_ERROR_OUT_OF_MEMORY,
               "%llu MiB more of this machine's memory would be over the %llu MiB that vgpud maps for a tenant "
               "(%shost_memory_mib%s%s)",
               (unsigned long long)(nbytes >> 20), (unsigned long long)(limit_of(s) >> 20),
               options->host_limit_of_share ? "" : "limits.", options->host_limit_of_share ? " in share " : "",
               options->host_limit_of_share ? options->share : "");
  return fits;
}

void vgx_host_release(struct vgx_session *s, uint64_t nbytes) {
  pthread_mutex_lock(&s->table_lock);
  s->host_nbytes -= nbytes;
  write_locked(s);
  pthread_mutex_unlock(&s->table_lock);
}

struct vgw_ledger *vgx_ledger_map(int fd, uint32_t row) {
  struct stat st;
  if (row >= VGW_LEDGER_ROWS || fstat(fd, &st) != 0 || (uint64_t)st.st_size < sizeof(struct vgw_ledger))
    return NULL;
  void *at = mmap(NULL, sizeof(struct vgw_ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? NULL : at;
}
