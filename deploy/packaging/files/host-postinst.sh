#!/bin/sh
set -e

case "$1" in
configure)
  getent group vgpu >/dev/null || addgroup --quiet --system vgpu
  if ! getent passwd vgpud >/dev/null; then
    adduser --quiet --system --group --no-create-home --home /nonexistent --gecos "vgpud" vgpud
  fi
  # Byte code that is believed as it is: the package's own Python writes none.
  /usr/lib/vgpud/python/bin/python3 -m compileall -q --invalidation-mode unchecked-hash \
    /usr/lib/vgpud/python/lib/python3.* /usr/lib/vgpud/python/site >/dev/null || true
  if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload || true
    # An upgrade: what runs takes the new files in place and keeps its sessions; one that cannot is started anew.
    if [ -n "$2" ] && systemctl --quiet is-active vgpud.service; then
      vgpu restart || systemctl try-restart vgpud.service || true
    fi
  fi
  ;;
esac
