/* The worker's questions to the host's cache of images (daemon/vgpud/services/image_service.py answers them). */
#include <string.h>

#include "vgx_desk.h"
#include "vgx_image_cache.h"
#include "vgx_session.h"

enum { FIND = 1, STORE = 2 };

struct question {
  uint32_t kind, zero;
  uint64_t nbytes; /* of the image, without its padding */
  uint64_t digest[4];
};

struct answer {
  uint32_t found, zero; /* `found` 1: a descriptor comes with the answer */
};

static struct vgx_desk desk = VGX_DESK_NONE;

void vgx_image_cache_set(int fd) { vgx_desk_open(&desk, fd); }

bool vgx_image_cache_is_there(void) { return desk.fd >= 0; }

/* If the host does not answer in time, nothing is stored or found. */
static bool ask(uint32_t kind, const uint64_t digest[4], uint64_t nbytes, int fd) {
  struct question question = {.kind = kind, .nbytes = nbytes};
  memcpy(question.digest, digest, sizeof question.digest);
  return vgx_desk_send(&desk, &question, sizeof question, fd);
}

int vgx_image_cache_find(const uint64_t digest[4], uint64_t nbytes) {
  struct answer answer;
  int fd = -1;
  pthread_mutex_lock(&desk.lock);
  if (ask(FIND, digest, nbytes, -1))
    vgx_desk_receive(&desk, &answer, sizeof answer, &fd);
  pthread_mutex_unlock(&desk.lock);
  return fd;
}

void vgx_image_cache_store(const uint64_t digest[4], uint64_t nbytes, int fd) {
  pthread_mutex_lock(&desk.lock);
  ask(STORE, digest, nbytes, fd);
  pthread_mutex_unlock(&desk.lock);
}
