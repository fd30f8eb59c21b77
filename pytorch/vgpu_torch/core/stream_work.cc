#include "stream_work.h"
#include "assertion.h"
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

namespace vgpu_torch {
namespace {

std::atomic<bool> is_async{false};

struct Work {
  c10::Device device;
  std::string operator_name;
  std::function<void()> body;
  bool once;
};

void run(void *argument) {
  auto *work = static_cast<Work *>(argument);
  // The driver's thread has none of the state that the dispatcher set up for the program's.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::AutoGradMode no_gradients(false);
  try {
    work->body();
  } catch (const c10::Error &error) {
    assertion_fail(work->device, work->operator_name, error.what_without_backtrace());
  } catch (const std::exception &error) {
    assertion_fail(work->device, work->operator_name, error.what());
  }
  if (work->once)
    delete work;
}

void destroy(void *work) { delete static_cast<Work *>(work); }

} // namespace

void stream_work_set_async(bool on) { is_async = on; }

Order stream_work_order(const DeviceStream &stream) {
  return stream.is_capturing() ? Order::CAPTURED : is_async ? Order::LATER : Order::NOW;
}

void stream_work_add(const DeviceStream &stream, const std::string &operator_name, std::function<void()> body) {
  const bool captured = stream.is_capturing();
  auto work = std::make_unique<Work>(Work{stream.device(), operator_name, std::move(body), !captured});
  if (captured)
    stream.give_to_graph(destroy, work.get());
  else
    stream.launch_host_function(run, work.get());
  void *argument = work.release();
  if (captured)
    stream.launch_host_function(run, argument);
}

} // namespace vgpu_torch
