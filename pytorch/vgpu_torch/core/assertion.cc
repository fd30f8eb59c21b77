#include "assertion.h"
#include <cstdio>
#include <thread>

namespace vgpu_torch {
namespace {

std::atomic<bool> on_device{false};

constexpr char KERNEL[] = "vgpu_torch_assertion";

std::string ptx_string(const char *name, const std::string &text) {
  std::string bytes;
  for (const char c : text)
    bytes += std::to_string(static_cast<unsigned char>(c)) + ", ";
  return ".global .align 1 .b8 " + std::string(name) + "[" + std::to_string(text.size() + 1) + "] = {" + bytes +
         "0};\n";
}

// A kernel of one thread, which calls the function that nvcc generates for assert().
std::string ptx(const std::string &operator_name, const std::string &message) {
  std::string text = ".version 6.4\n.target sm_75\n.address_size 64\n"
                     ".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, "
                     ".param .b64 s);\n";
  text += ptx_string("message", message) + ptx_string("file", "ATen") + ptx_string("function", operator_name);
  text += ".visible .entry " + std::string(KERNEL) + "()\n{\n.reg .b64 %rd<4>;\n";
  for (const char *name : {"message", "file", "function"})
    text += ".param .b64 p_" + std::string(name) + ";\n";
  text += ".param .b32 p_line;\n.param .b64 p_size;\n";
  int number = 1;
  for (const char *name : {"message", "file", "function"}) {
    const std::string reg = "%rd" + std::to_string(number++), symbol = name;
    text += "mov.u64 " + reg + ", " + symbol + ";\ncvta.global.u64 " + reg + ", " + reg + ";\nst.param.b64 [p_" +
            symbol + "], " + reg + ";\n";
  }
  text += "st.param.b32 [p_line], 0;\nst.param.b64 [p_size], 1;\n"
          "call.uni __assertfail, (p_message, p_file, p_line, p_function, p_size);\nret;\n}\n";
  return text;
}

std::string first_line(const std::string &message) { return message.substr(0, message.find('\n')); }

} // namespace

void assertion_set_on_device(bool on) { on_device = on; }
bool assertion_is_on_device() { return on_device; }

bool assertion_is_of_device(const std::string &message) {
  for (const char *text : {"out of range", "out of bounds", "index out of", "Class values must be smaller",
                           "not in the valid range", "should be between 0 and 1", "probability tensor contains",
                           "Expected Tensor with single nonzero value", "invalid max index"})
    if (message.find(text) != std::string::npos)
      return true;
  return false;
}

void assertion_launch(const DeviceStream &stream, const std::string &operator_name, const std::string &message) {
  stream.launch_kernel(ptx(operator_name, first_line(message)), KERNEL);
}

void assertion_fail(c10::Device device, const std::string &operator_name, const std::string &message) {
  std::thread([&] {
    try {
      device_set_current(device);
      const DeviceStream stream = DeviceStream::create(device);
      assertion_launch(stream, operator_name, message);
      stream.synchronize(); // throws the same error that the program sees
      fprintf(stderr, "vgpu: %s failed: %s\n", operator_name.c_str(), first_line(message).c_str());
    } catch (const std::exception &) {
    }
  }).join();
}

} // namespace vgpu_torch
