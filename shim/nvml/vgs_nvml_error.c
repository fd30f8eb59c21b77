#include "vgs_nvml.h"

const char *vgs_nvmlErrorString(unsigned int result) {
  static const char *const texts[] = {
      "Success",
      "Uninitialized",
      "Invalid Argument",
      "Not Supported",
      "Insufficient Permissions",
      "Already Initialized",
      "Not Found",
      "Insufficient Size",
      "Insufficient External Power",
      "Driver Not Loaded",
      "Timeout",
      "Interrupt Request Issue",
      "NVML Shared Library Not Found",
      "Function Not Found",
      "Corrupted infoROM",
      "GPU is lost",
      "GPU requires reset",
      "GPU access blocked by the operating system",
      "Driver/library version mismatch",
      "In use by another client",
      "Insufficient Memory",
      "No data",
      "Not supported while ECC is enabled",
      "Insufficient resources",
      "Frequency not supported",
      "Argument version mismatch",
      "Deprecated",
      "Not ready",
      "No GPUs found",
      "Invalid state",
      "Reset type not supported",
  };
  return result < sizeof texts / sizeof *texts ? texts[result] : "Unknown Error";
}
