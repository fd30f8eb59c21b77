/* Images of a session: offered by digest, or uploaded in pieces. An upload that was offered is written to a memfd,
 * which the host's cache can keep without a copy. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vgx_custom.h"
#include "vgx_image.h"
#include "vgx_image_cache.h"
#include "vgx_quota.h"
#include "vgx_session.h"

/* The place of an image id, or NULL. Under table_lock. */
static struct vgx_image *image_of(struct vgx_session *s, uint32_t id) {
  for (int i = 0; id && i < VGX_MAX_IMAGES; i++)
    if (s->images[i].id == id)
      return &s->images[i];
  return NULL;
}

/* A place for a new image of `total` bytes, or NULL; *over: the tenant's limit is reached. Under table_lock. */
static struct vgx_image *image_reserve(struct vgx_session *s, uint32_t id, uint64_t total, bool *over) {
  *over = false;
  if (id == 0 || total == 0 || total > VGX_IMAGE_NBYTES - s->image_nbytes)
    return NULL;
  for (int i = 0; i < VGX_MAX_IMAGES; i++)
    if (s->images[i].id == 0) {
      *over = !vgx_quota_reserve_locked(s, VGW_QUOTA_IMAGE_NBYTES, total);
      if (*over)
        return NULL;
      s->images[i] = (struct vgx_image){.id = id, .counted = true, .total = total, .upload_fd = -1};
      s->image_nbytes += total;
      return &s->images[i];
    }
  return NULL;
}

static void image_release(struct vgx_image *image) {
  if (image->mapped_nbytes)
    munmap(image->data, image->mapped_nbytes);
  else
    free(image->data);
  if (image->upload_fd >= 0)
    close(image->upload_fd);
}

static void image_free(struct vgx_session *s, struct vgx_image *image) {
  s->image_nbytes -= image->total;
  if (image->counted)
    vgx_quota_release_locked(s, VGW_QUOTA_IMAGE_NBYTES, image->total);
  image_release(image);
  *image = (struct vgx_image){0};
}

void vgx_images_free(struct vgx_session *s) {
  for (int i = 0; i < VGX_MAX_IMAGES; i++)
    if (s->images[i].id)
      image_free(s, &s->images[i]);
}

bool vgx_image_add(struct vgx_session *s, uint32_t id, void *data, uint64_t nbytes) {
  pthread_mutex_lock(&s->table_lock);
  bool over = false;
  struct vgx_image *image = image_of(s, id) ? NULL : image_reserve(s, id, nbytes, &over);
  if (image) {
    image->data = data;
    image->filled = nbytes;
  }
  pthread_mutex_unlock(&s->table_lock);
  if (over)
    vgx_quota_tell(s, VGW_QUOTA_IMAGE_NBYTES);
  return image;
}

static void *map(int fd, uint64_t nbytes, int protection, int flags) {
  void *data = mmap(NULL, nbytes, protection, flags, fd, 0);
  return data == MAP_FAILED ? NULL : data;
}

/* Memory for an upload that was offered: a memfd or, if that fails, malloc's, which the cache does not get. */
static bool upload_begin(struct vgx_image *image) {
  uint64_t nbytes = image->total + VGX_IMAGE_PADDING;
  int fd = memfd_create("vgpu-image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd >= 0 && ftruncate(fd, (off_t)nbytes) == 0 &&
      (image->data = map(fd, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED))) {
    image->mapped_nbytes = nbytes;
    image->upload_fd = fd;
    return true;
  }
  if (fd >= 0)
    close(fd);
  return (image->data = calloc(1, nbytes));
}

/* Seal a complete upload, which is mapped at `written`, and pass it to the host's cache. Until it is mapped again the
 * image has no data, and other threads must expect that. False: it could not be mapped again. */
static bool upload_end(struct vgx_image *image, void *written) {
  enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };
  munmap(written, image->mapped_nbytes); /* a writable mapping keeps it from being sealed */
  bool sealed = fcntl(image->upload_fd, F_ADD_SEALS, SEALS) == 0;
  void *data = map(image->upload_fd, image->mapped_nbytes, PROT_READ, MAP_PRIVATE);
  if (sealed)
    vgx_image_cache_store(image->digest, image->total, image->upload_fd);
  close(image->upload_fd);
  image->upload_fd = -1;
  __atomic_store_n(&image->data, data, __ATOMIC_RELEASE);
  return data;
}

CUresult vgx_vgpuImageOffer(struct vgx_session *s, const struct vgw_req_vgpuImageOffer *req,
                            struct vgw_rep_vgpuImageOffer *rep) {
  const uint64_t digest[4] = {req->digest0, req->digest1, req->digest2, req->digest3};
  if (!vgx_image_cache_is_there())
    return vgx_violation(s, "an image is offered and was not agreed on");
  pthread_mutex_lock(&s->table_lock);
  bool is_taken = image_of(s, req->image), over = false;
  struct vgx_image *image = is_taken ? NULL : image_reserve(s, req->image, req->total, &over);
  if (image)
    image->busy = true;
  pthread_mutex_unlock(&s->table_lock);
  if (is_taken)
    return vgx_violation(s, "image taken");
  if (over)
    vgx_quota_tell(s, VGW_QUOTA_IMAGE_NBYTES);
  if (!image)
    return CUDA_ERROR_OUT_OF_MEMORY;
  struct vgx_image found = {.counted = true, .total = req->total, .upload_fd = -1};
  memcpy(found.digest, digest, sizeof digest);
  int fd = vgx_image_cache_find(digest, req->total);
  struct stat status;
  uint64_t nbytes = req->total + VGX_IMAGE_PADDING;
  if (fd >= 0 && fstat(fd, &status) == 0 && (uint64_t)status.st_size == nbytes &&
      (found.data = map(fd, nbytes, PROT_READ, MAP_PRIVATE))) {
    found.mapped_nbytes = nbytes;
    found.filled = found.total;
  }
  if (fd >= 0)
    close(fd);
  rep->known = found.data != NULL;
  bool is_ready = found.data || upload_begin(&found);
  pthread_mutex_lock(&s->table_lock);
  found.id = req->image;
  *image = found; /* while it is marked busy, only this thread uses the entry */
  if (!is_ready)
    image_free(s, image);
  pthread_mutex_unlock(&s->table_lock);
  return is_ready ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vgx_vgpuImageWrite(struct vgx_session *s, const struct vgw_req_vgpuImageWrite *req, const void *data) {
  CUresult result = CUDA_SUCCESS;
  bool over = false;
  pthread_mutex_lock(&s->table_lock);
  struct vgx_image *image = image_of(s, req->image);
  if (!image && req->offset == 0) {
    image = image_reserve(s, req->image, req->total, &over);
    if (image && !(image->data = calloc(1, req->total + VGX_IMAGE_PADDING))) {
      image_free(s, image);
      image = NULL;
    }
    if (!image)
      result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  bool fits = image && !image->busy && req->total == image->total && req->offset == image->filled &&
              req->nbytes <= image->total - image->filled;
  if (fits && req->nbytes) {
    memcpy(image->data + image->filled, data, req->nbytes);
    image->filled += req->nbytes;
  }
  bool is_complete = fits && image->filled == image->total && image->upload_fd >= 0;
  void *written = is_complete ? image->data : NULL;
  if (is_complete) {
    image->busy = true;
    image->data = NULL;
  }
  pthread_mutex_unlock(&s->table_lock);
  if (is_complete) {
    bool is_whole = upload_end(image, written);
    pthread_mutex_lock(&s->table_lock);
    image->busy = false;
    if (!is_whole) {
      image->mapped_nbytes = 0;
      image_free(s, image);
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&s->table_lock);
  }
  if (over)
    vgx_quota_tell(s, VGW_QUOTA_IMAGE_NBYTES);
  if (!fits && result == CUDA_SUCCESS)
    return vgx_violation(s, "image pieces out of order");
  return result;
}

CUresult vgx_vgpuImageDrop(struct vgx_session *s, const struct vgw_req_vgpuImageDrop *req) {
  pthread_mutex_lock(&s->table_lock);
  struct vgx_image *image = image_of(s, req->image);
  bool is_busy = image && image->busy;
  if (image && !is_busy)
    image_free(s, image);
  pthread_mutex_unlock(&s->table_lock);
  if (is_busy)
    return vgx_violation(s, "an image is dropped while it is in use");
  return image ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult vgx_vgpuImageRead(struct vgx_session *s, const struct vgw_req_vgpuImageRead *req, void *data,
                           uint64_t *data_nbytes) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&s->table_lock);
  const struct vgx_image *image = image_of(s, req->image);
  if (image && image->data && image->filled == image->total && req->offset <= image->total &&
      *data_nbytes <= image->total - req->offset) {
    memcpy(data, image->data + req->offset, *data_nbytes);
    result = CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&s->table_lock);
  return result;
}

CUresult vgx_image_acquire(struct vgx_session *s, uint32_t id, struct vgx_image *taken) {
  CUresult result = CUDA_ERROR_INVALID_IMAGE;
  pthread_mutex_lock(&s->table_lock);
  struct vgx_image *image = image_of(s, id);
  if (image && !image->busy && image->filled == image->total) {
    image->busy = true;
    *taken = *image;
    result = CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&s->table_lock);
  return result;
}

void vgx_image_release(struct vgx_session *s, const struct vgx_image *taken) {
  pthread_mutex_lock(&s->table_lock);
  image_of(s, taken->id)->busy = false; /* no thread drops it while it is busy */
  pthread_mutex_unlock(&s->table_lock);
}

CUresult vgx_image_load_begin(struct vgx_session *s, uint32_t id, struct vgx_image *taken) {
  uint64_t begun_ns;
  CUresult result = vgx_compile_begin(&begun_ns);
  if (result == CUDA_SUCCESS)
    result = vgx_image_acquire(s, id, taken);
  taken->begun_ns = begun_ns;
  return result;
}

void vgx_image_load_end(struct vgx_session *s, const struct vgx_image *taken) {
  vgx_compile_end(taken->begun_ns);
  vgx_image_release(s, taken);
}

void vgx_image_charge(struct vgx_session *s, const struct vgx_image *taken, enum vgw_kind kind, uint32_t id) {
  pthread_mutex_lock(&s->table_lock);
  struct vgx_image *image = image_of(s, taken->id);
  if (image && image->counted)
    image->counted = false;
  else /* dropped already, or loaded a second time */
    vgx_quota_add_locked(s, VGW_QUOTA_IMAGE_NBYTES, taken->total);
  vgx_handle_set_image_locked(s, kind, id, taken->total);
  pthread_mutex_unlock(&s->table_lock);
}
