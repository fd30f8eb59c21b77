/* A launcher and its child: which pages vgx_template_release drops, and what they hold afterwards. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vgx_template.h"

enum { PAGE = 4096, PAGES = 8 };

#define CHECK(condition)                                                                                               \
  if (!(condition))                                                                                                    \
  exit(__LINE__ % 200 + 1)

static int child(volatile char *memory) {
  vgx_template_open();
  for (int i = 0; i < 3; i++) { /* written, and as it was */
    memory[i * PAGE + 7] = 'x';
    memory[i * PAGE + 7] = (char)('a' + i);
  }
  memory[4 * PAGE] = 'x';
  memory[6 * PAGE] = 'x'; /* was never written before the fork */
  memory[7 * PAGE] = 'x';
  memory[7 * PAGE] = 0;
  CHECK(vgx_template_release() == 4 * PAGE);
  for (int i = 0; i < 4; i++)
    CHECK(memory[i * PAGE + 7] == 'a' + i);
  CHECK(memory[4 * PAGE] == 'x' && memory[4 * PAGE + 7] == 'e');
  CHECK(memory[6 * PAGE] == 'x' && memory[7 * PAGE] == 0);
  memory[0] = 'y'; /* a dropped page can be written again */
  CHECK(memory[0] == 'y' && memory[7] == 'a');
  CHECK(vgx_template_release() == 0); /* once for each time that it is opened */
  return 0;
}

int main(void) {
  char *memory = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  CHECK(vgx_template_release() == 0); /* no template, nothing opened */
  for (int i = 0; i < 6; i++)
    memory[i * PAGE + 7] = (char)('a' + i);
  struct vgx_range range = {(uintptr_t)memory, (size_t)PAGES * PAGE};
  CHECK(vgx_template_make(&range, 1) == 0);
  for (int i = 0; i < 6; i++)
    CHECK(memory[i * PAGE + 7] == 'a' + i);
  pid_t pid = fork();
  if (pid == 0)
    _exit(child(memory));
  int status;
  CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
  CHECK(memory[7] == 'a' && memory[4 * PAGE] == 0 && memory[6 * PAGE] == 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}
