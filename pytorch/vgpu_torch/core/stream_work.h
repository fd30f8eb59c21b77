// Work that this process does in a stream's order: behind the program's back, or at each launch of a captured graph.
#pragma once
#include "device.h"
#include <functional>
#include <string>

namespace vgpu_torch {

enum class Order {
  NOW,      // the caller waits for the stream and does it itself
  LATER,    // in stream order, as a kernel of a GPU would run (VGPU_TORCH=async)
  CAPTURED, // at each launch of the graph that the stream's capture will make
};

void stream_work_set_async(bool on);
Order stream_work_order(const DeviceStream &stream);

// Has `body` run after what is in the stream by now, on a thread of the driver's. In a capture the graph owns it. What
// `body` throws becomes a device-side assertion: an error of the context, which the program meets at its next call.
void stream_work_add(const DeviceStream &stream, const std::string &operator_name, std::function<void()> body);

} // namespace vgpu_torch
