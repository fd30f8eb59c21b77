/* What copies may touch, and pinned memory that both processes map.
 *
 * An address the client names is either a device address, which the backend checks, or lies in a region this session
 * mapped. Nothing else of this process may be read or written for a client. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "vgw_enums.h"
#include "vgw_pinned.h"
#include "vgx_custom.h"
#include "vgx_host_quota.h"
#include "vgx_memory.h"
#include "vgx_page.h"
#include "vgx_session.h"

#ifndef F_GET_SEALS
#define F_GET_SEALS 1034
#define F_SEAL_SHRINK 2
#endif

#define PAGE 4096ull
enum { GRAPH_RANGES_MAX = 65536 };
enum { TMPFS = 0x01021994 }; /* statfs(2): also the kind of a memfd and of shared anonymous memory */

struct vgx_mapping *vgx_mapping_of_locked(const struct vgx_session *s, uint64_t address, uint64_t nbytes) {
  for (uint32_t i = 0; i < s->mapping_count; i++) {
    struct vgx_mapping *m = &s->mappings[i];
    if (!m->kernels_only && address >= m->address && address - m->address <= m->nbytes &&
        nbytes <= m->nbytes - (address - m->address))
      return m;
  }
  return NULL;
}

bool vgx_is_pinned_locked(const struct vgx_session *s, uint64_t address, uint64_t nbytes) {
  return vgx_mapping_of_locked(s, address, nbytes);
}

bool vgx_is_pinned(struct vgx_session *s, uint64_t address, uint64_t nbytes) {
  pthread_mutex_lock(&s->table_lock);
  bool found = vgx_is_pinned_locked(s, address, nbytes);
  pthread_mutex_unlock(&s->table_lock);
  return found;
}

bool vgx_move_pinned(struct vgx_session *s, uint64_t address, void *to, const void *from, uint64_t nbytes) {
  pthread_mutex_lock(&s->table_lock); /* so that it stays mapped */
  struct vgx_mapping *found = vgx_mapping_of_locked(s, address, nbytes);
  if (found)
    memcpy(to ? to : (void *)address, from ? from : (const void *)address, nbytes);
  if (found && found->pages && from)
    vgx_pages_written(found->pages, address - found->address, nbytes);
  pthread_mutex_unlock(&s->table_lock);
  return found;
}

CUresult vgx_graph_range_reserve(struct vgx_session *s, uint64_t nbytes) {
  pthread_mutex_lock(&s->table_lock);
  struct vgx_graph_range *grown = s->graph_range_count < GRAPH_RANGES_MAX
                                      ? realloc(s->graph_ranges, (s->graph_range_count + 1) * sizeof *grown)
                                      : NULL;
  if (grown) {
    s->graph_ranges = grown;
    s->graph_ranges[s->graph_range_count++] = (struct vgx_graph_range){0, nbytes};
  }
  pthread_mutex_unlock(&s->table_lock);
  return grown ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void vgx_graph_range_set(struct vgx_session *s, uint64_t address, uint64_t nbytes) {
  pthread_mutex_lock(&s->table_lock);
  uint32_t i = s->graph_range_count;
  while (i > 0 && (s->graph_ranges[i - 1].address || s->graph_ranges[i - 1].nbytes != nbytes))
    i--;
  if (i > 0 && address)
    s->graph_ranges[i - 1].address = address;
  else if (i > 0)
    s->graph_ranges[i - 1] = s->graph_ranges[--s->graph_range_count];
  pthread_mutex_unlock(&s->table_lock);
}

static bool is_of_graph(struct vgx_session *s, uint64_t address, uint64_t nbytes) {
  bool found = false;
  pthread_mutex_lock(&s->table_lock);
  for (uint32_t i = 0; i < s->graph_range_count && !found; i++) {
    const struct vgx_graph_range *r = &s->graph_ranges[i];
    found = r->address && address >= r->address && address - r->address <= r->nbytes &&
            nbytes <= r->nbytes - (address - r->address);
  }
  pthread_mutex_unlock(&s->table_lock);
  return found;
}

bool vgx_is_reachable(struct vgx_session *s, uint64_t address, uint64_t nbytes) {
  int32_t type = 0;
  if (vgx_is_pinned(s, address, nbytes))
    return true;
  bool on_device =
      s->backend->cuPointerGetAttribute &&
      s->backend->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
      type == CU_MEMORYTYPE_DEVICE;
  return on_device || is_of_graph(s, address, nbytes);
}

bool vgx_box_is_reachable(struct vgx_session *s, uint64_t address, uint64_t pitch, uint64_t rows, uint64_t width,
                          uint64_t height, uint64_t depth) {
  uint64_t slice, planes, lines, span;
  if (!width || !height || !depth)
    return true;
  return !__builtin_mul_overflow(pitch, rows, &slice) && !__builtin_mul_overflow(slice, depth - 1, &planes) &&
         !__builtin_mul_overflow(pitch, height - 1, &lines) && !__builtin_add_overflow(planes, lines, &span) &&
         !__builtin_add_overflow(span, width, &span) && vgx_is_reachable(s, address, span);
}

bool vgx_rows_fill(uint64_t width, uint64_t height, uint64_t nbytes) {
  return width && height && height <= VGW_PIECE_NBYTES && width <= VGW_PIECE_NBYTES && width * height == nbytes;
}

void *vgx_region_map(struct vgx_session *s, void *address, uint64_t offset, uint64_t nbytes) {
  const struct vgx_serve_options *options = s->options;
  if (!(options->features & VGX_FEATURE_REGION) || offset % PAGE || nbytes % PAGE || !nbytes ||
      offset > options->region_nbytes || nbytes > options->region_nbytes - offset) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  return mmap(address, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | (address ? MAP_FIXED_NOREPLACE : 0),
              options->region_fd, (off_t)(options->region_offset + offset));
}

bool vgx_in_window(uint64_t address, uint64_t nbytes) {
  uint64_t offset = address - VGW_PINNED_BEGIN;
  return address >= VGW_PINNED_BEGIN && address % PAGE == 0 && nbytes % PAGE == 0 && nbytes &&
         offset < VGW_PINNED_NBYTES && nbytes <= VGW_PINNED_NBYTES - offset;
}

CUresult vgx_register(struct vgx_session *s, void *at, uint64_t nbytes) {
  CUresult result = s->backend->cuMemHostRegister_v2(at, nbytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  return result == CUDA_ERROR_NOT_SUPPORTED ? s->backend->cuMemHostRegister_v2(at, nbytes, CU_MEMHOSTALLOC_PORTABLE)
                                            : result;
}

static CUresult register_constant(struct vgx_session *s, void *at, uint64_t nbytes) {
  return s->backend->cuMemHostRegister_v2(
      at, nbytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY);
}

static CUresult add_mapping(struct vgx_session *s, void *at, uint64_t nbytes, uint64_t region_offset, bool read_only) {
  if (at == MAP_FAILED)
    return errno == EEXIST ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
  bool is_file = region_offset == VGX_NO_REGION; /* the pinned region itself bounds the copy */
  if (is_file && !vgx_host_reserve(s, nbytes)) {
    munmap(at, nbytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUresult result = read_only ? register_constant(s, at, nbytes) : vgx_register(s, at, nbytes);
  bool registered = result == CUDA_SUCCESS;
  pthread_mutex_lock(&s->table_lock);
  if (registered && s->mapping_count == VGX_MAX_MAPPINGS)
    result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) {
    struct vgx_mapping *grown = realloc(s->mappings, (s->mapping_count + 1) * sizeof *grown);
    if (grown) {
      s->mappings = grown;
      s->mappings[s->mapping_count++] = (struct vgx_mapping){(uintptr_t)at, nbytes, region_offset, read_only, NULL};
    } else {
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  pthread_mutex_unlock(&s->table_lock);
  if (result != CUDA_SUCCESS) {
    if (registered)
      s->backend->cuMemHostUnregister(at);
    munmap(at, nbytes);
    if (is_file)
      vgx_host_release(s, nbytes);
  }
  return result;
}

CUresult vgx_add_mapping(struct vgx_session *s, void *at, uint64_t nbytes, uint64_t region_offset) {
  return add_mapping(s, at, nbytes, region_offset, false);
}

CUresult vgx_vgpuHostMapAt(struct vgx_session *s, const struct vgw_req_vgpuHostMapAt *req) {
  if (!vgx_in_window(req->address, req->nbytes))
    return vgx_violation(s, "pinned region outside its window");
  void *at = vgx_region_map(s, (void *)req->address, req->offset, req->nbytes);
  if (at == MAP_FAILED && errno == EINVAL)
    return vgx_violation(s, "pinned memory outside the session's memory");
  return vgx_add_mapping(s, at, req->nbytes, req->offset);
}

CUresult vgx_vgpuHostMap(struct vgx_session *s, const struct vgw_req_vgpuHostMap *req, int fd) {
  struct stat st;
  int seals = fcntl(fd, F_GET_SEALS);
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (!vgx_in_window(req->address, req->nbytes))
    result = vgx_violation(s, "pinned region outside its window");
  /* A file that could shrink would let the client fault this process at will. */
  else if (fstat(fd, &st) != 0 || (uint64_t)st.st_size < req->nbytes || seals < 0 || !(seals & F_SEAL_SHRINK))
    result = vgx_violation(s, "pinned region without a sealed file of its size");
  else
    result = vgx_add_mapping(
        s, mmap((void *)req->address, req->nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0),
        req->nbytes, VGX_NO_REGION);
  close(fd);
  return result;
}

/* Whether a file of the client holds these pages; its last page may be partial. If the client shrinks the file, this
 * worker faults and that client loses its session. Files on other file systems are refused: a fault there could wait
 * for a server that the client controls. */
static CUresult check_file(int fd, uint64_t offset, uint64_t nbytes) {
  struct stat st;
  struct statfs system;
  if (fstat(fd, &st) != 0 || fstatfs(fd, &system) != 0 || system.f_type != TMPFS || !S_ISREG(st.st_mode))
    return CUDA_ERROR_NOT_SUPPORTED;
  uint64_t whole = ((uint64_t)st.st_size + PAGE - 1) & ~(PAGE - 1);
  return offset % PAGE || offset > whole || nbytes > whole - offset ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult vgx_vgpuHostMapFile(struct vgx_session *s, const struct vgw_req_vgpuHostMapFile *req, int fd) {
  int access = req->read_only ? PROT_READ : PROT_READ | PROT_WRITE;
  CUresult result = vgx_in_window(req->address, req->nbytes) ? check_file(fd, req->offset, req->nbytes)
                                                             : vgx_violation(s, "registered memory outside the window");
  if (result == CUDA_SUCCESS)
    result = add_mapping(
        s, mmap((void *)req->address, req->nbytes, access, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, (off_t)req->offset),
        req->nbytes, VGX_NO_REGION, req->read_only);
  close(fd);
  return result;
}

CUresult vgx_vgpuHostUnmap(struct vgx_session *s, const struct vgw_req_vgpuHostUnmap *req) {
  uint64_t nbytes = 0, region_offset = VGX_NO_REGION;
  pthread_mutex_lock(&s->table_lock);
  for (uint32_t i = 0; i < s->mapping_count && !nbytes; i++)
    if (s->mappings[i].address == req->address) {
      nbytes = s->mappings[i].nbytes;
      region_offset = s->mappings[i].region_offset;
      free(s->mappings[i].pages);
      s->mappings[i] = s->mappings[--s->mapping_count];
    }
  pthread_mutex_unlock(&s->table_lock);
  if (!nbytes)
    return CUDA_ERROR_INVALID_VALUE;
  /* cudaFreeHost waits for the device: work in flight may still use the memory. */
  CUresult result = s->backend->cuCtxSynchronize();
  s->backend->cuMemHostUnregister((void *)req->address);
  munmap((void *)req->address, nbytes);
  if (region_offset == VGX_NO_REGION)
    vgx_host_release(s, nbytes);
  else /* the pages are freed, so the client's next piece begins with zeros */
    fallocate(s->options->region_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              (off_t)(s->options->region_offset + region_offset), (off_t)nbytes);
  return result;
}
