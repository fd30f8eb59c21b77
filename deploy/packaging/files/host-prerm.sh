#!/bin/sh
set -e

find /usr/lib/vgpud -name __pycache__ -prune -exec rm -rf {} +
case "$1" in
remove)
  if [ -d /run/systemd/system ]; then
    systemctl disable --now vgpud.socket vgpud.service || true
  fi
  ;;
esac
