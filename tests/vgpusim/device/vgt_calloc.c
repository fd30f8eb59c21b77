/* One call of calloc that fails, in a function whose stack is full of bytes that are no pointers (linked in by
 * -Wl,--wrap). */
#include <stdint.h>
#include <string.h>

typedef int function(uint64_t, void *);

void *__real_calloc(size_t count, size_t nbytes);
void *__wrap_calloc(size_t count, size_t nbytes);
int vgt_call_without_calloc(function *called, uint64_t address, void *stream);

static _Thread_local int fails; /* the next call of this thread */

void *__wrap_calloc(size_t count, size_t nbytes) {
  if (!fails)
    return __real_calloc(count, nbytes);
  fails = 0;
  return NULL;
}

__attribute__((noinline)) static void fill_stack(void) {
  char stack[16384];
  memset(stack, 0xa5, sizeof stack);
  __asm__ volatile("" : : "r"(stack) : "memory"); /* the compiler must write it */
}

int vgt_call_without_calloc(function *called, uint64_t address, void *stream) {
  fill_stack();
  fails = 1;
  int result = called(address, stream);
  fails = 0;
  return result;
}
