/* Memory of the worker's own: copies of a client's host memory that is not shared, which kernels reach, and staging
 * memory of graphs. The client moves its bytes in and out. After a wait it asks which pages kernels have changed: a
 * device writes to memory without a trace, so each page is compared with a digest of what the client has. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "vgw_pinned.h"
#include "vgx_custom.h"
#include "vgx_memory.h"
#include "vgx_page.h"
#include "vgx_session.h"

enum { AT_ONCE = 64 /* pages, while the table is locked */ };
#define LOOKED_AT_MAX 65536u /* pages of a call, as a client may name the same ones again and again */

CUresult vgx_vgpuHostReserve(struct vgx_session *s, const struct vgw_req_vgpuHostReserve *req) {
  vgx_page_init();
  if (!vgx_in_window(req->address, req->nbytes))
    return vgx_violation(s, "reserved memory outside its window");
  struct vgx_page *pages = calloc(req->nbytes / VGX_PAGE_NBYTES, sizeof *pages);
  if (!pages)
    return CUDA_ERROR_OUT_OF_MEMORY;
  void *at = mmap((void *)req->address, req->nbytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  CUresult result = vgx_add_mapping(s, at, req->nbytes, VGX_NO_REGION);
  pthread_mutex_lock(&s->table_lock);
  struct vgx_mapping *m = result ? NULL : vgx_mapping_of_locked(s, req->address, req->nbytes);
  if (m && !m->pages) {
    m->pages = pages;
    pages = NULL;
  }
  pthread_mutex_unlock(&s->table_lock);
  free(pages);
  return result;
}

/* What a call has answered so far: runs of pages, each after the struct that names it. */
struct answer {
  uint8_t *bytes;
  uint64_t nbytes, capacity;
  struct vgw_host_pages run; /* the last one, which can grow; without bytes: none */
  uint64_t run_at;
};

/* Append a page. Its digest is that of the bytes that are sent: a kernel may be writing to it. False: there is no room.
 */
static bool append(struct answer *answer, uint64_t address, struct vgx_page *page) {
  bool grows = answer->run.nbytes && answer->run.address + answer->run.nbytes == address;
  uint64_t head = grows ? 0 : sizeof answer->run;
  if (answer->capacity - answer->nbytes < head + VGX_PAGE_NBYTES)
    return false;
  if (!grows) {
    answer->run = (struct vgw_host_pages){.address = address};
    answer->run_at = answer->nbytes;
  }
  uint8_t *to = answer->bytes + answer->nbytes + head;
  memcpy(to, (const void *)address, VGX_PAGE_NBYTES);
  vgx_page_set(page, to);
  answer->run.nbytes += VGX_PAGE_NBYTES;
  memcpy(answer->bytes + answer->run_at, &answer->run, sizeof answer->run);
  answer->nbytes += head + VGX_PAGE_NBYTES;
  return true;
}

/* Look at pages of one mapping. *done: how many; fewer than asked for if there is no room for the next one. */
static CUresult look(struct vgx_session *s, struct answer *answer, uint64_t address, uint64_t count, uint64_t *done) {
  CUresult result = CUDA_SUCCESS;
  *done = 0;
  pthread_mutex_lock(&s->table_lock); /* so that they stay mapped */
  struct vgx_mapping *m = vgx_mapping_of_locked(s, address, count * VGX_PAGE_NBYTES);
  if (!m || !m->pages)
    result = CUDA_ERROR_INVALID_VALUE;
  for (uint64_t at = address; !result && *done < count; at += VGX_PAGE_NBYTES, ++*done) {
    struct vgx_page *page = &m->pages[(at - m->address) / VGX_PAGE_NBYTES];
    if (!vgx_page_is(page, (const void *)at) && !append(answer, at, page))
      break;
  }
  pthread_mutex_unlock(&s->table_lock);
  return result;
}

/* An error behind pages that are in the answer is left to the call that goes on from there: the client has to get what
 * the digests say that it was sent. */
CUresult vgx_vgpuHostChanges(struct vgx_session *s, const struct vgw_req_vgpuHostChanges *req, const void *pages,
                             struct vgw_rep_vgpuHostChanges *rep, void *changes, uint64_t *changes_nbytes) {
  struct answer answer = {.bytes = changes, .capacity = *changes_nbytes};
  uint64_t skipped = req->begin, looked_at = 0;
  bool full = false;
  for (uint32_t i = 0; i + sizeof(struct vgw_host_pages) <= req->pages_nbytes && !full;
       i += sizeof(struct vgw_host_pages)) {
    struct vgw_host_pages asked;
    memcpy(&asked, (const char *)pages + i, sizeof asked);
    if (!vgx_in_window(asked.address, asked.nbytes)) {
      if (!answer.nbytes)
        return CUDA_ERROR_INVALID_VALUE;
      full = true;
      break;
    }
    uint64_t count = asked.nbytes / VGX_PAGE_NBYTES, at = skipped < count ? skipped : count;
    skipped -= at;
    answer.run.nbytes = 0;
    while (at < count && !full) {
      uint64_t part = count - at < AT_ONCE ? count - at : AT_ONCE, done;
      CUresult result = look(s, &answer, asked.address + at * VGX_PAGE_NBYTES, part, &done);
      if (result && !answer.nbytes)
        return result;
      at += done;
      looked_at += done;
      full = result || done < part || looked_at >= LOOKED_AT_MAX;
    }
  }
  rep->filled = *changes_nbytes = answer.nbytes;
  rep->next = full ? req->begin + looked_at : 0;
  return CUDA_SUCCESS;
}
