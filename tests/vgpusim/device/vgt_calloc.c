/* Makes one call of calloc fail in a function whose stack is filled with bytes that are not pointers (linked in by
 * -Wl,--wrap). */
#include <stdint.h>
#include <string.h>

typedef int function(uint64_t, void *);

void *__real_calloc(size_t count, size_t nbytes);
void *__wrap_calloc(size_t count, size_t nbytes);
int vgt_call_without_calloc(function *called, uint64_t address, void *stream);

static _Thread_local int fails; /* whether the next calloc of this thread fails */

void *__wrap_calloc(size_t count, size_t nbytes) {
  if (!fails)
    return __real_calloc(count, nbytes);
  fails = 0;
  return NULL;
}

__attribute__((noinline)) static void fill_stack(void) {
  char stack[16384];
  memset(stack, 0xa5, sizeof stack);
  __asm__ volatile("" : : "r"(stack) : "memory"); /* keeps the compiler from removing the memset */
}

int vgt_call_without_calloc(function *called, uint64_t address, void *stream) {
  fill_stack();
  fails = 1;
  int result = called(address, stream);
  fails = 0;
  return result;
}
