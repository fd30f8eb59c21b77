#!/bin/sh
# QEMU from this folder, with the C library that it was built for.
self=$(readlink -f -- "$0") || exit 127
here=${self%/*}
export QEMU_MODULE_DIR="$here/lib"
exec "$here/lib/ld-linux-x86-64.so.2" --library-path "$here/lib" "$here/qemu" -L "$here/share" "$@"
