#include "trace.h"
#include "check.h"
#include <atomic>
#include <mutex>

namespace vgpu_torch {
namespace {

std::atomic<bool> is_tracing{false};
std::mutex trace_mutex;
std::vector<std::string> trace_lines;

} // namespace

void trace_set(bool on) { is_tracing = on; }

void trace_call(const Operator &op, c10::ArrayRef<c10::IValue> values) {
  if (!is_tracing)
    return;
  const auto dtype = first_dtype(values);
  const std::string line = op.name + "\t" + (dtype ? std::to_string(static_cast<int>(*dtype)) : "-") + "\n";
  const std::lock_guard<std::mutex> lock(trace_mutex);
  if (std::find(trace_lines.begin(), trace_lines.end(), line) == trace_lines.end())
    trace_lines.push_back(line);
}

std::string trace_text() {
  const std::lock_guard<std::mutex> lock(trace_mutex);
  std::string text;
  for (const std::string &line : trace_lines)
    text += line;
  trace_lines.clear();
  return text;
}

} // namespace vgpu_torch
