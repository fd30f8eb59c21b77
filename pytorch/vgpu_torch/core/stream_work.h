// Work that this process does in stream order: asynchronously to the program, or at each launch of a captured graph.
#pragma once
#include "device.h"
#include <functional>
#include <string>

namespace vgpu_torch {

enum class Order {
  NOW,      // the caller waits for the stream and does the work itself
  LATER,    // in stream order, like a kernel on a GPU (VGPU_TORCH=async)
  CAPTURED, // at each launch of the graph that is being captured
};

void stream_work_set_async(bool on);
Order stream_work_order(const DeviceStream &stream);

// Enqueues `body` in the stream; it runs on a thread of the driver. During a capture, the graph owns `body`. An
// exception in `body` becomes a device-side assertion: a context error that the program's next call returns.
void stream_work_add(const DeviceStream &stream, const std::string &operator_name, std::function<void()> body);

} // namespace vgpu_torch
