#!/usr/bin/env bash
# Runs tests_lmms with the wheel as people install it, beside lmms-eval, by the documented lines.
# The environment lies outside the clone, is shared between clones, and is named by a hash of what is
# in it; it is made in a folder of its own and moved into place, so that a broken one is never used.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3.11}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tokencover
requirements=$(sed -n '/^dependencies = \[/,/^]/p; /^figures = \[/,/^]/p; /^lmms = \[/,/^]/p' pyproject.toml)
key=$( (echo "$requirements"; "$python" -V; cat constraints.txt tests_lmms/run.sh) | sha256sum | cut -c1-12)
environment=$cache/lmms-$key
work=$(mktemp -d)
trap 'rm -rf "$work" "$environment.$$"' EXIT

echo "==> building the wheel"
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work" . ./models
wheel=$(echo "$work"/tokencover-*.whl)
models=$(echo "$work"/tokencover_models-*.whl)
# lmms-eval's tables want an older python-dateutil than the tools of the documentation have.
grep -v '^python-dateutil==' constraints.txt >"$work/constraints.txt"

if [ ! -d "$environment" ]; then
    echo "==> installing lmms-eval and the wheel into $environment (a few minutes)"
    mkdir -p "$cache"
    "$python" -m venv "$environment.$$"
    install() { "$environment.$$/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
    install --constraint "$work/constraints.txt" torch
    torch=$("$environment.$$/bin/python" -m pip list --format=freeze | grep '^torch==')
    install --constraint "$work/constraints.txt" "$wheel[lmms,figures]"
    install --no-deps lmms-eval==0.7.3
    installed=$("$environment.$$/bin/python" -m pip list --format=freeze)
    grep -qxF "$torch" <<<"$installed" || { echo "torch was replaced"; exit 1; }
    if grep -q '^torchvision==' <<<"$installed"; then echo "torchvision came along"; exit 1; fi
    install --constraint "$work/constraints.txt" pytest pytest-xdist
    "$environment.$$/bin/python" -m pip uninstall --quiet --yes tokencover
    mv -T "$environment.$$" "$environment" 2>/dev/null || [ -d "$environment" ]
fi

echo "==> running the tests of lmms-eval's benchmarks"
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
    --target "$work/site" "$wheel" "$models"
export PYTHONPATH=$work/site
"$environment/bin/python" -m pytest -p no:cacheprovider --numprocesses=2 --dist=loadfile \
    ${1:+"$@"} tests_lmms
