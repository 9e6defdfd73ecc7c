#!/usr/bin/env bash
# Runs tests_quantized with the wheel, beside bitsandbytes, torchao and optimum-quanto, in an
# environment below ~/.cache that is named by a checksum of what is in it.
set -euo pipefail
cd "$(dirname "$0")/.."
requirements=tests_quantized/requirements.txt
key=$(cat "$requirements" constraints.txt tests_quantized/run.sh | sha256sum | cut -c1-12)
kept=${XDG_CACHE_HOME:-$HOME/.cache}/tokencover
environment=$kept/quantized-$key
python=$environment/bin/python

mkdir -p "$kept"
exec 9> "$kept/.quantized-lock"
flock 9
if [ ! -e "$environment/.ready" ]; then
  echo "==> building $environment (some minutes, once)"
  rm -rf "$environment"
  "${PYTHON:-python3.11}" -m venv "$environment"
  sh tools/install_torch.sh "$python" "${TORCH:-cpu}"
  torch=$("$python" -m pip list --format=freeze | grep '^torch==')
  "$python" -m pip install --quiet --disable-pip-version-check \
    --constraint constraints.txt --requirement "$requirements" hatchling
  installed=$("$python" -m pip list --format=freeze)
  grep -qxF "$torch" <<< "$installed" || { echo "torch was replaced" >&2; exit 1; }
  touch "$environment/.ready"
fi
exec 9>&-

# The package as users get it, entry points included; the environment itself stays clean.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  --target "$work/site" . ./models
export PYTHONPATH=$work/site OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
# optimum-quanto finds the ninja of its environment by the path.
export PATH=$environment/bin:$PATH
echo "==> tests with quantized weights"
"$python" -m pytest -p no:cacheprovider --numprocesses="${JOBS:-2}" \
  -W 'ignore::DeprecationWarning' -W 'ignore::FutureWarning' -W 'ignore::UserWarning' \
  "${@:-tests_quantized}"
