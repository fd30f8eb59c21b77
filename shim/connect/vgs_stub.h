/* The PCI devices that a virtual machine shows for its GPUs (docs/vm.md): they carry the card's identity and nothing
 * else. If there are any, the machine's vgpud is used (vgs_endpoint.h), and the devices have the stubs' addresses
 * (`pci` of the hello, wire.md). Only this file searches for them. */
#ifndef VGS_STUB_H
#define VGS_STUB_H

#include <stdbool.h>
#include <stdint.h>

enum { VGS_STUB_MAX = 64, VGS_STUB_ADDRESS_NBYTES = 16 };

/* Addresses (dddd:bb:dd.f) of display devices of NVIDIA's that no driver has taken, in ascending order; their number. A
 * card with a driver is a real one in use. None where /sys is not mounted. */
uint32_t vgs_stub_find(char addresses[VGS_STUB_MAX][VGS_STUB_ADDRESS_NBYTES]);

/* Whether `file` of the device `name` in the open folder `devices` (/sys/bus/pci/devices) begins with this text. */
bool vgs_pci_begins(int devices, const char *name, const char *file, const char *text);

#endif
