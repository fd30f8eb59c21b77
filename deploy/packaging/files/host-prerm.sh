#!/bin/sh
set -e

case "$1" in
remove)
  if [ -d /run/systemd/system ]; then
    systemctl disable --now vgpud.socket vgpud.service || true
  fi
  ;;
esac
