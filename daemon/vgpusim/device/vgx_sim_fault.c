/* Turns signals of faults into error codes. The handlers act only while a thread is inside a guarded body; otherwise
 * the fault goes to the previous handler.
 *
 * A body is left with siglongjmp, so it must not hold anything: kernels hold no locks, and the services they call are
 * bracketed. Faults' handlers are installed with SA_NODEFER, so no signal mask needs restoring. Kicks are blocked while
 * one is handled: they are queued, and a thread that has not run for a while gets all of them at once, whose frames
 * together would overflow its signal stack. The floating-point control word is restored, since a kernel may have set
 * flush-to-zero. Locking: none; everything is the thread's own, except the stop word, which only ever becomes nonzero.
 */
#define _GNU_SOURCE
#include "vgx_sim_fault.h"

#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "vgx_sim_control_word.h"
#include "vgx_sim_reach.h"

#define SIGNAL_STACK_NBYTES (64u << 10)
#define PAGE_NBYTES 4096u

struct guard {
  sigjmp_buf jump;
  const uint32_t *stop;
  volatile sig_atomic_t in_service;
  struct vgx_sim_fault fault;
};

/* initial-exec: reading it in a handler must not allocate. */
static _Thread_local __attribute__((tls_model("initial-exec"))) struct guard *current_guard;
static _Thread_local bool has_signal_stack;
static pthread_once_t installed = PTHREAD_ONCE_INIT;

static const int fault_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
#define FAULT_SIGNALS (sizeof fault_signals / sizeof fault_signals[0])
static struct sigaction previous[FAULT_SIGNALS];

static int kick_signal(void) { return SIGRTMIN + 6; }

static bool must_stop(const struct guard *g) { return g->stop && __atomic_load_n(g->stop, __ATOMIC_RELAXED) != 0; }

static void pass_on(int signal, siginfo_t *info, void *context) {
  for (size_t i = 0; i < FAULT_SIGNALS; i++) {
    if (fault_signals[i] != signal)
      continue;
    if (previous[i].sa_flags & SA_SIGINFO)
      previous[i].sa_sigaction(signal, info, context);
    else if (previous[i].sa_handler != SIG_DFL && previous[i].sa_handler != SIG_IGN)
      previous[i].sa_handler(signal);
    else
      sigaction(signal, &previous[i], NULL); /* the instruction faults again, now with the default action */
    return;
  }
}

/* Whether the faulting instruction read or wrote. */
static int access_of(const void *context) {
#if defined(__x86_64__)
  const ucontext_t *u = context;
  return u->uc_mcontext.gregs[REG_ERR] & 2 ? VGX_SIM_ACCESS_WRITE : VGX_SIM_ACCESS_READ;
#else
  (void)context;
  return VGX_SIM_ACCESS_UNKNOWN;
#endif
}

/* Whether the fault is a stack overflow: kernels touch each page of a function's frame, so an overflow always hits the
 * guard page below the thread's stack. */
static bool is_stack(const void *context, uint64_t address) {
#if defined(__x86_64__)
  uint64_t top = (uint64_t)((const ucontext_t *)context)->uc_mcontext.gregs[REG_RSP];
  return !vgx_sim_is_reachable(address) && address - (top - PAGE_NBYTES) < 2 * PAGE_NBYTES;
#else
  (void)context, (void)address;
  return false;
#endif
}

static void on_fault(int signal, siginfo_t *info, void *context) {
  struct guard *g = current_guard;
  if (!g || g->in_service || info->si_code <= 0) { /* si_code <= 0: another process or thread sent it */
    pass_on(signal, info, context);
    return;
  }
  g->fault = (struct vgx_sim_fault){.result = CUDA_ERROR_ILLEGAL_ADDRESS,
                                    .signal = signal,
                                    .address = (uint64_t)info->si_addr,
                                    .warp = VGX_SIM_NO_WARP};
  if (signal == SIGSEGV || signal == SIGBUS)
    g->fault.access = access_of(context);
  if (signal == SIGSEGV && is_stack(context, g->fault.address))
    g->fault = (struct vgx_sim_fault){.result = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
                                      .message = "its code needs more stack than the simulator's threads have"};
  if (signal == SIGBUS && info->si_code == BUS_ADRALN)
    g->fault.result = CUDA_ERROR_MISALIGNED_ADDRESS;
  if (signal == SIGFPE || signal == SIGILL)
    g->fault.result = CUDA_ERROR_LAUNCH_FAILED;
  siglongjmp(g->jump, 1);
}

static void leave_stopped(struct guard *g) {
  g->fault = (struct vgx_sim_fault){.result = CUDA_ERROR_LAUNCH_FAILED, .message = "stopped"};
  siglongjmp(g->jump, 1);
}

static void on_kick(int signal) {
  (void)signal;
  struct guard *g = current_guard;
  if (g && !g->in_service && must_stop(g))
    leave_stopped(g);
}

static void install(void) {
  struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  action.sa_sigaction = on_fault;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < FAULT_SIGNALS; i++)
    sigaction(fault_signals[i], &action, &previous[i]);
  struct sigaction kick = {.sa_flags = SA_ONSTACK | SA_RESTART};
  kick.sa_handler = on_kick;
  sigemptyset(&kick.sa_mask);
  sigaction(kick_signal(), &kick, NULL);
}

static void unblock_kicks(void) {
  sigset_t kicks;
  sigemptyset(&kicks);
  sigaddset(&kicks, kick_signal());
  pthread_sigmask(SIG_UNBLOCK, &kicks, NULL);
}

void vgx_sim_fault_thread_init(void) {
  if (has_signal_stack)
    return;
  has_signal_stack = true;
  sigset_t ours; /* the creator of this thread may have blocked all signals */
  sigemptyset(&ours);
  sigaddset(&ours, kick_signal());
  for (size_t i = 0; i < FAULT_SIGNALS; i++)
    sigaddset(&ours, fault_signals[i]);
  pthread_sigmask(SIG_UNBLOCK, &ours, NULL);
  stack_t stack = {.ss_size = SIGNAL_STACK_NBYTES};
  stack.ss_sp = mmap(NULL, SIGNAL_STACK_NBYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack.ss_sp != MAP_FAILED)
    sigaltstack(&stack, NULL);
}

CUresult vgx_sim_guarded(const uint32_t *stop, void (*body)(void *), void *argument, struct vgx_sim_fault *fault) {
  pthread_once(&installed, install);
  struct guard g = {.stop = stop};
  uint32_t word = vgx_sim_control_word();
  if (sigsetjmp(g.jump, 0) != 0) {
    current_guard = NULL;
    vgx_sim_set_control_word(word);
    unblock_kicks(); /* after current_guard: those that are queued are handled now */
    *fault = g.fault;
    return g.fault.result;
  }
  current_guard = &g;
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  body(argument);
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  current_guard = NULL;
  return CUDA_SUCCESS;
}

_Noreturn void vgx_sim_leave(CUresult result, const char *message) {
  struct guard *g = current_guard;
  if (!g)
    abort(); /* a service was called outside a kernel: a bug of the simulator */
  g->fault = (struct vgx_sim_fault){.result = result, .message = message};
  siglongjmp(g->jump, 1);
}

const void *vgx_sim_reach(uint64_t address) {
  if (!vgx_sim_is_reachable(address))
    vgx_sim_leave(CUDA_ERROR_ILLEGAL_ADDRESS,
                  "a string or an argument of printf or assert is not memory of the device");
  return (const void *)address;
}

void vgx_sim_service_begin(void) {
  if (current_guard)
    current_guard->in_service = 1;
}

void vgx_sim_service_end(void) {
  struct guard *g = current_guard;
  if (!g)
    return;
  g->in_service = 0;
  if (must_stop(g)) /* a kick may have come meanwhile */
    leave_stopped(g);
}

void vgx_sim_service_pause(void) {
  if (current_guard)
    current_guard->in_service = 0;
}

void vgx_sim_kick(pthread_t thread) {
  pthread_once(&installed, install); /* the thread may not be in a body yet: by default the signal ends the process */
  pthread_kill(thread, kick_signal());
}
