#!/usr/bin/env bash
# Runs tests_browser in Chromium, in an environment of its own, which is kept for the next time.
set -euo pipefail
cd "$(dirname "$0")/.."
requirements=tests_browser/requirements.txt
key=$(cat "$requirements" constraints.txt | sha256sum | cut -c1-12)
kept=${XDG_CACHE_HOME:-$HOME/.cache}/tokencover
environment=$kept/browser-$key
python=$environment/bin/python

if [ -z "${CHROMIUM:-}" ] && ! command -v chromium > /dev/null && ! command -v google-chrome > /dev/null
then
  if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    echo "==> installing Chromium"
    apt-get update -qq && apt-get install -y -qq chromium > /dev/null
  else
    echo "There is no Chromium: install it (apt-get install chromium), or say where it is by CHROMIUM=PATH." >&2
    exit 1
  fi
fi

mkdir -p "$kept"
exec 9> "$kept/.browser-lock"
flock 9
if [ ! -e "$environment/.ready" ]; then
  echo "==> building $environment (1.5 GB, some minutes, once)"
  rm -rf "$environment"
  "${PYTHON:-python3.11}" -m venv "$environment"
  # Gradio wants older versions of these than the ones that all other tests run with.
  grep -viE '^(pillow|tomlkit)==' constraints.txt > "$environment/constraints.txt"
  "$python" -m pip install --quiet --disable-pip-version-check \
    --constraint "$environment/constraints.txt" --requirement "$requirements"
  touch "$environment/.ready"
fi
exec 9>&-

export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "==> tests in a browser"
# Gradio asks pandas for a setting that is going away; as an error that would stop its queue.
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$work" . ./models
PYTHONPATH=$work:. "$python" -m pytest -p no:cacheprovider -p no:xdist -o addopts="--strict-markers -ra -q" \
  -W "ignore:'future.no_silent_downcasting' is deprecated" "$@" tests_browser
