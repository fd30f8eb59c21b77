#!/bin/sh
# A guest of this bundle, and CUDA programs in it: see vm/vm_check.py.
self=$(readlink -f -- "$0") || exit 127
exec "${self%/*}/../python/bin/python3" "${self%/*}/../vm/vm_check.py" "$@"
