/* Where a simulated device's memory lies: each device has a range of addresses of its own. A client on the same machine
 * may hand the worker a file for it, which then holds all of the device's memory, byte i of the range at offset i; the
 * client maps that file VGW_ALIAS_OFFSET above the device's addresses. At the device's addresses themselves a client
 * maps nothing that can be read, so that a host's use of a device pointer faults.
 *
 * No ordinary process maps anything in either range. All may be set by the compiler's command line: ThreadSanitizer
 * reserves these addresses. */
#ifndef VGW_DEVICE_MEMORY_H
#define VGW_DEVICE_MEMORY_H

#ifndef VGW_DEVICE_MEMORY_BEGIN
#define VGW_DEVICE_MEMORY_BEGIN 0x200000000000ull
#endif
#ifndef VGW_DEVICE_MEMORY_NBYTES /* of one device */
#define VGW_DEVICE_MEMORY_NBYTES (1ull << 40)
#endif
#ifndef VGW_ALIAS_OFFSET
#define VGW_ALIAS_OFFSET 0x200000000000ull
#endif

#define VGW_SIMULATED_DEVICES_MAX 16 /* their addresses end where the window of pinned memory begins */

#endif
