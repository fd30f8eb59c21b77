#!/bin/sh
# The libraries are put in place by vgpu itself: with a manifest, and beside what others have installed.
set -e

manifest=/var/lib/vgpu/manifest.json

case "$1" in
configure)
  if [ -z "$2" ]; then
    /usr/lib/vgpu-guest/vgpu install || warned=yes
  elif [ -e "$manifest" ]; then
    # An upgrade: what had been installed, for the machine or for services, is made anew.
    /usr/lib/vgpu-guest/vgpu repair || warned=yes
  fi
  # A warning leaves an installation behind, a failure does not.
  if [ -n "$warned" ]; then
    echo "vgpu-guest: see above; then run \`vgpu install\` again" >&2
    [ -e "$manifest" ] || exit 1
  fi
  ;;
esac
