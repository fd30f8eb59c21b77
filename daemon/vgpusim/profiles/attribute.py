"""The driver's device attributes and limits by number, from protocol/data/enums.tsv.

Names are the driver's without CU_DEVICE_ATTRIBUTE_; profiles use them in lower case. Units, where a value has one:
clock rates in kHz, sizes and pitches in bytes, texture and surface extents in elements, bus width in bits.
"""

from vgpusim._gen.enums import ContextLimit, DeviceAttribute

__all__ = ["ATTRIBUTE_COUNT", "ContextLimit", "DeviceAttribute"]

ATTRIBUTE_COUNT = 161
"""Ids 0..160 are packed into the inventory; the 580 driver answers INVALID_VALUE for 0 and from 148 on."""
