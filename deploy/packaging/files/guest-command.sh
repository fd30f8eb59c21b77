#!/bin/sh
# vgpu of the guest's package. Python is isolated and writes no byte code: what the package put there is all there is.
self=$(readlink -f -- "$0") || exit 127
exec @PYTHON@ -IB "${self%/*}" "$@"
