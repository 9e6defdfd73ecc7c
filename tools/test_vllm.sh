#!/usr/bin/env bash
# Runs tests_vllm in an environment of its own, which is kept for the next time.
#
#   tools/test_vllm.sh                  every test; fails if the environment cannot be built
#   tools/test_vllm.sh --if-possible    those for each change; if it cannot be built says so loudly
#                                       and goes on
#   tools/test_vllm.sh --python         builds it and prints its interpreter
#   ONLY="server pebble" tools/test_vllm.sh     some groups of tests
set -euo pipefail
cd "$(dirname "$0")/.."
wanted=${1:-}
requirements=tests_vllm/requirements.txt
key=$(cat "$requirements" tools/torchvision_schemas.py | sha256sum | cut -c1-12)
kept=${XDG_CACHE_HOME:-$HOME/.cache}/tokencover
environment=$kept/vllm-$key
python=$environment/bin/python

build() {
  echo "==> building $environment (some minutes, once)" >&2
  rm -rf "$environment"
  "${PYTHON:-python3.11}" -m venv "$environment" || return
  # What is imported is compiled then; most of it never is.
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile \
    --requirement "$requirements" 1>&2 || return
  # torchvision's own operators do not load beside torch for CPUs; their names must be known.
  local packages
  packages=$("$python" -c 'import site; print(site.getsitepackages()[0])') || return
  cp tools/torchvision_schemas.py "$packages/" || return
  echo "import torchvision_schemas" > "$packages/torchvision_schemas.pth"
  "$python" -c 'import torchvision, vllm' 1>&2 || return
  touch "$environment/.ready"
}

mkdir -p "$kept"
exec 9> "$kept/.lock"
flock 9
if [ ! -e "$environment/.ready" ] && ! build; then
  echo "################################################################################" >&2
  echo "##  NOT TESTED: vLLM. Its environment could not be built, see above.          ##" >&2
  echo "################################################################################" >&2
  [ "$wanted" = --if-possible ] && exit 0
  exit 1
fi
exec 9>&-
if [ "$wanted" = --python ]; then echo "$python"; exit; fi

# The package as users get it, entry points included; the environment itself stays clean.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  --target "$work/site" . ./models
export PYTHONPATH=$work/site OMP_NUM_THREADS=1

# An engine lives as long as its process, so every group of tests has one of its own.
run() {
  local name=$1 log=$2/$1.log
  local file=tests_vllm/test_$name.py
  case $name in
    llava_next | qwen*) file=tests_vllm/test_tiny_families.py ;;
    http_*) file=tests_vllm/test_served_families.py ;;
  esac
  if FAMILY=$name "$3" -m pytest -c tests_vllm/pytest.ini --rootdir . -q "$file" > "$log" 2>&1
  then echo "    $name: $(tail -n 1 "$log")"
  else cat "$log"; echo "    $name: FAILED"; return 1
  fi
}
export -f run
groups="server pebble by_picture qwen3_vl qwen2_5_vl qwen2_vl llava_next pebble_reindexed refusals"
# A server for each family: what goes over HTTP is the same for all of them, so not for each change.
more="http_qwen3_vl http_qwen2_5_vl http_qwen2_vl http_llava_next"
if [ "$wanted" != --if-possible ]; then groups="$groups $more"; fi
echo "==> tests with vLLM, two processes at a time"
printf '%s\n' ${ONLY:-$groups} |
  xargs -P "${JOBS:-2}" -I NAME bash -c 'run NAME "$0" "$1"' "$work" "$python"
