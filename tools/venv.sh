# Sourced by tools/test and tools/demo: a virtual environment with this checkout in it, made once and kept while it fits.
# The script that sources it has set root, the folder of the checkout.
# shellcheck shell=bash

# say TEXT: what happens, on stdout.
say() {
  printf '%s: %s\n' "${0##*/}" "$*"
}

# fail TEXT: one sentence on stderr, exit 1.
fail() {
  say "$*" >&2
  exit 1
}

# venv_folder DEFAULT: prints where the environment is: $BULKINFER_VENV, else DEFAULT, a folder of the checkout $root.
venv_folder() {
  local folder="${BULKINFER_VENV:-$1}"
  [[ "$folder" == /* ]] || folder="$root/$folder"
  printf '%s\n' "$folder"
}

# make_venv FOLDER: afterwards FOLDER is a virtual environment with the checkout $root and all its extras, in place.
# It is installed into again when pyproject.toml, the constraints or the place of the checkout have changed.
# A virtual environment that somebody else made is used as it is and gets what it lacks.
make_venv() {
  local folder="$1" wanted log
  wanted="$root $(cat "$root/pyproject.toml" "$root/tools/constraints.txt" | cksum)"
  if [[ -x "$folder/bin/python" && -r "$folder/made-for" && "$(<"$folder/made-for")" == "$wanted" ]]; then
    return 0
  fi
  log="$(mktemp)"
  say "installing into $folder; the first time takes some minutes and 6 GB"
  if ! _install "$folder" >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail "the installation into $folder failed; $log has all of its output"
  fi
  rm "$log"
  printf '%s\n' "$wanted" >"$folder/made-for"
}

_install() {
  local folder="$1"
  rm -f "$folder/made-for" || return 1
  if [[ ! -x "$folder/bin/python" ]]; then
    _create "$folder" || return 1
  fi
  "$folder/bin/python" -m pip install --disable-pip-version-check --no-input \
    --constraint "$root/tools/constraints.txt" --editable "$root[all]"
}

_create() {
  local folder="$1" python
  python="$(_find_python)" || return 1
  # Where the system's Python comes without ensurepip, the pip beside it puts one in.
  "$python" -m venv "$folder" ||
    { "$python" -m venv --without-pip "$folder" && "$python" -m pip --python "$folder/bin/python" install pip; }
}

_find_python() {
  local name
  for name in python3 python3.14 python3.13 python3.12 python3.11; do
    if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
      command -v "$name"
      return 0
    fi
  done
  echo "no Python of version 3.11 or newer is on PATH" >&2
  return 1
}
