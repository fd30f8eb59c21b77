#include "vgs_error_text.h"
#include <stddef.h>

const char *vgs_error_text(int error) {
  switch (error) {
  case 0:
    return "no error";
  case 1:
    return "invalid argument";
  case 2:
    return "out of memory";
  case 3:
    return "the driver is not initialized: call cuInit first, and not in a forked child";
  case 4:
    return "the driver is shutting down";
  case 5:
    return "the profiler is disabled";
  case 6:
    return "the profiler is not initialized";
  case 7:
    return "the profiler is already started";
  case 8:
    return "the profiler is already stopped";
  case 34:
    return "the library is a stub";
  case 36:
    return "the call needs a newer driver";
  case 46:
    return "the device or its worker is no longer available";
  case 100:
    return "no device is visible";
  case 101:
    return "no such device";
  case 102:
    return "the device is not licensed";
  case 200:
    return "the image is not one that can be loaded";
  case 201:
    return "no current context, or an invalid one";
  case 202:
    return "the context is current already";
  case 205:
    return "mapping failed";
  case 206:
    return "unmapping failed";
  case 207:
    return "the array is mapped";
  case 208:
    return "the resource is mapped already";
  case 209:
    return "the image holds no code for this device";
  case 210:
    return "the resource is acquired already";
  case 211:
    return "the resource is not mapped";
  case 212:
    return "the resource is not mapped as an array";
  case 213:
    return "the resource is not mapped as a pointer";
  case 214:
    return "an ECC error that could not be corrected";
  case 215:
    return "the device does not support this limit";
  case 216:
    return "another thread uses the context";
  case 217:
    return "the devices cannot address each other's memory";
  case 218:
    return "the PTX cannot be compiled";
  case 219:
    return "invalid graphics context";
  case 220:
    return "an NVLink error that could not be corrected";
  case 221:
    return "no PTX compiler was found";
  case 222:
    return "the PTX is of a version newer than this driver";
  case 223:
    return "compilation is disabled";
  case 224:
    return "the device does not support this execution affinity";
  case 225:
    return "synchronizing on the device is not supported";
  case 226:
    return "an error that was contained";
  case 300:
    return "the source is invalid";
  case 301:
    return "file not found";
  case 302:
    return "a symbol of a shared object was not found";
  case 303:
    return "a shared object could not be initialized";
  case 304:
    return "the operating system refused";
  case 400:
    return "invalid handle";
  case 401:
    return "the state does not allow this";
  case 402:
    return "the query would lose information";
  case 500:
    return "name or object not found";
  case 600:
    return "not finished yet";
  case 700:
    return "a kernel used an illegal address";
  case 701:
    return "the launch needs more resources than the device has";
  case 702:
    return "a kernel ran too long";
  case 703:
    return "the launch uses an incompatible texturing mode";
  case 704:
    return "access to the peer is enabled already";
  case 705:
    return "access to the peer is not enabled";
  case 708:
    return "the primary context is in use";
  case 709:
    return "the context is destroyed, or not retained yet";
  case 710:
    return "a kernel's assertion failed";
  case 711:
    return "too many peers";
  case 712:
    return "the host memory is registered already";
  case 713:
    return "the host memory is not registered";
  case 714:
    return "a hardware stack error";
  case 715:
    return "an illegal instruction";
  case 716:
    return "a kernel used a misaligned address";
  case 717:
    return "an instruction used an address of the wrong space";
  case 718:
    return "the program counter is invalid";
  case 719:
    return "a kernel failed";
  case 720:
    return "a cooperative launch has more blocks than fit the device at once";
  case 721:
    return "tensor memory was not given back";
  case 800:
    return "not permitted";
  case 801:
    return "not supported";
  case 802:
    return "the vgpu daemon cannot be reached, or is not ready";
  case 803:
    return "the vgpu daemon and this library do not fit together";
  case 804:
    return "compatibility mode is not supported on this device";
  case 805:
    return "cannot connect to MPS";
  case 806:
    return "an MPS call failed";
  case 807:
    return "the MPS server is not ready";
  case 808:
    return "too many MPS clients";
  case 809:
    return "too many MPS connections";
  case 810:
    return "the MPS client was ended";
  case 811:
    return "launching kernels from kernels is not supported";
  case 812:
    return "launching kernels from kernels: versions do not fit";
  case 900:
    return "not allowed while a stream is capturing";
  case 901:
    return "the capture is invalid because of an earlier error";
  case 902:
    return "two captures would be merged";
  case 903:
    return "the capture was not begun on this stream";
  case 904:
    return "the capture has forked work that was not joined";
  case 905:
    return "work outside the capture would depend on it";
  case 906:
    return "the capture would depend on the legacy default stream";
  case 907:
    return "the event belongs to a capture";
  case 908:
    return "another thread began the capture";
  case 909:
    return "time is up";
  case 910:
    return "the graph's topology does not allow the update";
  case 911:
    return "an error on an external device";
  case 912:
    return "invalid cluster size";
  case 913:
    return "the function is not loaded";
  case 914:
    return "invalid type of resource";
  case 915:
    return "invalid configuration of resources";
  case 916:
    return "the key was rotated";
  case 999:
    return "unknown error";
  default:
    return NULL;
  }
}
