#!/bin/sh
# Install torch as constraints.txt has it.  install_torch.sh PYTHON cpu|index|newest
#
# "cpu" takes the build for CPUs, from the index that pip uses if it has one, else from PyTorch's
# own; "index" takes what pip's index gives, which for Linux on PyPI is the build for GPUs; "newest"
# takes the newest version of that.
set -eu
python=$1
kind=$2
pinned=$(grep -E '^torch==' constraints.txt)
install="$python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt"

if [ "$kind" = newest ]; then
    exec $python -m pip install --quiet --disable-pip-version-check --upgrade torch
fi
echo "==> installing $pinned ($kind)"
if [ "$kind" = index ] || [ "$(uname -s)" = Darwin ]; then
    exec $install torch
fi
if $install "$pinned+cpu" 2>/dev/null; then
    exit 0
fi
echo "    your index has no build for CPUs; trying download.pytorch.org"
if $install "$pinned+cpu" --extra-index-url https://download.pytorch.org/whl/cpu; then
    exit 0
fi
echo "No build of $pinned for CPUs was found. To take what your index gives (on Linux perhaps the" >&2
echo "build for GPUs, 5 GB and more): the same make command with TORCH=index" >&2
exit 1
