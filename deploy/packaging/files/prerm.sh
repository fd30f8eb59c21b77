#!/bin/sh
set -e

case "$1" in
remove)
  # It fails also where it keeps a guest.conf that its owner has changed: that is no reason to keep the package.
  if ! /usr/lib/vgpu-guest/vgpu uninstall; then
    [ ! -e /usr/lib/vgpu ] && [ ! -e /etc/ld.so.conf.d/000-vgpu.conf ]
  fi
  ;;
esac
