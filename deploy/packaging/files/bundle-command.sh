#!/bin/sh
# @COMMAND@ from this folder, wherever it lies. Nothing is put into the environment: programs get their user's.
self=$(readlink -f -- "$0") || exit 127
exec "${self%/*}/../python/bin/python3" -c 'from vgpud.cli.main import @COMMAND@; @COMMAND@(@ARGUMENTS@)' "$@"
