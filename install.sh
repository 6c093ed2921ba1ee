#!/usr/bin/env bash
# Makes .venv beside this file and installs TIDE into it. Safe to run again: finished steps are skipped, an
# interrupted one is repeated.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: ./install.sh [--profile cpu|cuda|rocm] [--dev] [--python PYTHON]

  --profile   which machine this is; found by itself when not given
  --dev       also install what the tests need
  --python    the Python to use (3.11 to 3.13); default: the newest of these on PATH

TIDE_TORCH_INDEX=URL takes torch for the profile cpu from that package index (PyTorch's own index has builds for
the CPU, which are several gigabytes smaller than the default ones).
TEXT
}

fail() { # WHAT [NEXT]
  echo "install.sh: $1" >&2
  [ $# -lt 2 ] || echo "$2" >&2
  exit 1
}

profile="" dev=no python=""
while [ $# -gt 0 ]; do
  case "$1" in
    --profile) [ $# -ge 2 ] || { usage >&2; exit 2; }; profile=$2; shift 2 ;;
    --python) [ $# -ge 2 ] || { usage >&2; exit 2; }; python=$2; shift 2 ;;
    --dev) dev=yes; shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "install.sh: unknown argument $1" >&2; usage >&2; exit 2 ;;
  esac
done

cd "$(dirname "$0")"
venv=$PWD/.venv
stamps=$venv/.tide-install
began=$SECONDS

find_profile() {
  if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q GPU; then
    echo cuda
  elif [ -e /dev/kfd ]; then
    echo rocm
  else
    echo cpu
  fi
}

find_python() {
  local candidate
  for candidate in python3.13 python3.12 python3.11 python3; do
    if command -v "$candidate" >/dev/null 2>&1 && fits "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

fits() { "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }

# step NAME COMMAND…: runs the command unless it has been finished before with the same words and the same pins
step() {
  local name=$1 key stamp started
  shift
  key=$( { echo "$profile $*"; cat pyproject.toml; } | sha256sum | cut -c1-32)
  stamp=$stamps/$name
  if [ "$(cat "$stamp" 2>/dev/null)" = "$key" ]; then
    printf '  %-34s already done\n' "$name"
    return
  fi
  printf '  %-34s ' "$name"
  started=$SECONDS
  if ! "$@" >"$stamps/$name.log" 2>&1; then
    echo "failed"
    tail -n 15 "$stamps/$name.log" >&2
    fail "the step '$name' failed (all of its output: $stamps/$name.log)" "mend the cause and run ./install.sh again: it goes on from here"
  fi
  echo "$key" >"$stamp"
  printf '%4d s\n' $((SECONDS - started))
}

pip() { "$venv/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }

profile=${profile:-$(find_profile)}
case "$profile" in
  cpu | cuda) ;;
  rocm) fail "the profile rocm installs nothing: SGLang's wheels on the package index are CUDA builds, not for AMD GPUs" \
    "use SGLang's ROCm container and run ./install.sh --profile cuda inside it, or serve on the CPU with ./install.sh --profile cpu" ;;
  *) fail "unknown profile '$profile'" "choose cpu, cuda or rocm" ;;
esac

if [ -z "$python" ]; then
  python=$(find_python) || fail "no Python 3.11 to 3.13 with venv on PATH" "install one (Debian: apt-get install python3-venv) or pass --python PYTHON"
else
  command -v "$python" >/dev/null 2>&1 || fail "there is no $python" "pass a Python 3.11 to 3.13 with --python"
  fits "$python" || fail "$python is not a Python 3.11 to 3.13 with venv" "pass another one with --python"
fi

echo "TIDE: profile $profile, $("$python" --version), into $venv"
if [ -x "$venv/bin/python" ] && ! "$venv/bin/python" -c '' 2>/dev/null; then
  rm -rf "$venv" # its Python is gone
fi
[ -x "$venv/bin/python" ] && [ -f "$venv/pyvenv.cfg" ] && "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear "$venv"
mkdir -p "$stamps"

step pip pip install --upgrade 'pip>=25.1' # the first that reads dependency groups
if [ "$profile" = cpu ]; then
  step torch pip install ${TIDE_TORCH_INDEX:+--index-url "$TIDE_TORCH_INDEX"} --group torch-cpu
  step packages pip install --no-deps --group cpu
  step sglang pip install --no-deps --group sglang
else
  step sglang pip install --group sglang
fi
step specforge pip install --no-deps --group specforge
step embedded-target pip install --no-deps --group embedded-target
step tide pip install --editable .
[ "$dev" = no ] || step dev-tools pip install --group dev --group bench

echo "installed in $((SECONDS - began)) s; checking:"
"$venv/bin/tide" doctor
cat <<TEXT
next:
  .venv/bin/tide demo    watch a draft learn, a few minutes
  .venv/bin/tide up      serve a model
  ln -s '$venv/bin/tide' ~/.local/bin/    gives it the name \`tide\`, where ~/.local/bin is on PATH
TEXT
