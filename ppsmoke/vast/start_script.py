"""The shell script that turns a rented box into a node.

It arms the dead-man switch before anything else: a watcher that asks for the end of its own instance, with the key that
the container has for just that, when nothing was heard from the orchestrator for PP_ORPHAN_TIMEOUT seconds. A node says
that it heard something by touching the file $PP_HEARD_FILE. A box whose installation failed, or whose node ended, is
kept for its logs and meets the same end. Installation comes second, and only where the image does not bring the version
that was asked for.
"""

from __future__ import annotations

LONG_ENTRIES = "PP_LONG"
"""Names the variables whose values came in parts: `NAME:parts`, separated by blanks; part i is in NAME_i."""


def start_script() -> str:
    """The text for `bash -c`. Everything that differs between stages comes from the environment."""
    return _SCRIPT


_SCRIPT = r"""exec 2>&1
say() { echo "pp-smoke-run: $*"; }
for entry in ${PP_LONG:-}; do
  name=${entry%%:*} value='' part=0
  while [ "$part" -lt "${entry#*:}" ]; do
    piece=${name}_$part; value=$value${!piece:-}; part=$((part + 1))
  done
  export "$name=$value"
done
dir=${HOME:-/root}/pp-smoke-run
mkdir -p "$dir"
export PP_HEARD_FILE=$dir/heard
: >"$PP_HEARD_FILE"

# The dead-man switch.
id=${CONTAINER_ID:-${VAST_CONTAINERLABEL:-}}; id=${id#C.}
key=${CONTAINER_API_KEY:-}
unset CONTAINER_API_KEY
url=${PP_VAST_URL:-https://console.vast.ai}/api/v0/instances/$id/
delete='import sys, urllib.request as r
head = {"Authorization": "Bearer " + sys.stdin.read().strip(), "Content-Type": "application/json"}
try:
    r.urlopen(r.Request(sys.argv[1], b"{}", head, method="DELETE"), timeout=30)
except Exception as error:
    sys.exit(f"that failed: {error}")'
end_instance() {
  if command -v python3 >/dev/null; then
    python3 -c "$delete" "$url" <<<"$key"
  else
    curl -fsS -m 30 -X DELETE -d '{}' -H 'Content-Type: application/json' -H @- "$url" <<<"Authorization: Bearer $key"
  fi
}
watch_silence() {
  trap 'kill $! 2>/dev/null; exit' TERM
  limit=${PP_ORPHAN_TIMEOUT:-600} tick=10 quiet=0 last=''
  [ "$limit" -ge 100 ] || tick=1
  while true; do
    sleep "$tick" &
    wait $!
    seen=$(stat -c %y "$PP_HEARD_FILE" 2>/dev/null)
    # Ticks are counted, not clock times compared: a host's clock may jump.
    if [ "$seen" != "$last" ]; then last=$seen quiet=0; continue; fi
    quiet=$((quiet + tick))
    [ "$quiet" -lt "$limit" ] && continue
    say "nothing heard for $quiet s: ending instance $id"
    end_instance && say "asked for the end of instance $id"
  done
}
if [ -z "$id" ] || [ -z "$key" ]; then say "no instance key here: this box cannot end itself"; fi
watch_silence &
watcher=$!
node=''
trap 'kill $node $watcher 2>/dev/null; exit 143' TERM INT

# The installation.
try() {
  for pause in 5 15 0; do
    "$@" && return 0
    sleep "$pause"
  done
  return 1
}
has_version() { [ "$("$1" --version 2>/dev/null)" = "pp-gpu-node $PP_VERSION" ]; }
install() {
  if ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    try apt-get update -qq && try apt-get install -qq -y python3 python3-venv ca-certificates || return 1
  fi
  python3 -m venv "$dir/venv" || return 1
  package=$PP_PACKAGE
  if [ -n "${PP_BOOTSTRAP:-}" ]; then
    try pip_install "$PP_BOOTSTRAP_NEEDS" || return 1
    package=$(try "$dir/venv/bin/python" -c "$unpack" "$dir" "$PP_BOOTSTRAP") || return 1
  fi
  try pip_install "$package"
}
pip_install() {
  set -- --no-cache-dir --quiet --disable-pip-version-check "$@"
  [ -z "${PP_INDEX_URL:-}" ] || set -- --index-url "$PP_INDEX_URL" "$@"
  "$dir/venv/bin/pip" install "$@"
}
# The caller's own code, read from the caller.
unpack='import base64, sys, zlib; exec(zlib.decompress(base64.b64decode(sys.argv[2])))'
program=$(command -v pp-gpu-node)
if [ -n "${PP_BOOTSTRAP:-}" ] || ! has_version "$program"; then
  program=$dir/venv/bin/pp-gpu-node
  say "installing ${PP_BOOTSTRAP:+the code of the caller as }$PP_PACKAGE"
  if ! install || ! has_version "$program"; then
    say "the installation failed"
    wait "$watcher"
  fi
fi

say "starting stage $STAGE of $NUM_STAGES"
"$program" </dev/null &
node=$!
wait "$node"
say "pp-gpu-node ended with status $?"
wait "$watcher"
"""
