#!/bin/sh
set -e

case "$1" in
purge)
  rm -rf /var/cache/vgpu
  ;;
remove)
  [ ! -d /run/systemd/system ] || systemctl --system daemon-reload || true
  ;;
esac
