"""Errors that end a VM's device."""

from __future__ import annotations


class Violation(Exception):
    """The VM (its guest, or its VMM) broke the rules of vhost-user, virtio or virtio-vsock; the text is for the log."""
