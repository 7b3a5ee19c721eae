# What scripts/demo, scripts/test and scripts/lab/stories share. They run one at a time, start a cluster and a guest, and leave nothing behind.
# Source it with the repository as the working directory.

lab_dir=$PWD/build/lab
lab_pids=()
lab_ceph= lab_kube=

lab_fail() { echo "${0##*/}: $*" >&2; exit 1; }

# Lets one lab run at a time on a machine, which has one set of nbd devices and few cores. Children close the lock, so that a leftover cannot hold it.
lab_lock() {
  mkdir -p "$lab_dir"
  exec 8>"$lab_dir/lock"
  if ! flock -n 8; then
    echo "${0##*/}: waiting for another run (process $(cat "$lab_dir/lock.pid" 2>/dev/null || echo unknown)) to end" >&2
    flock -w 3600 8 || lab_fail "the other run did not end within an hour"
  fi
  echo $$ >"$lab_dir/lock.pid"
  trap lab_down EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
}

lab_down() {
  local rc=$? pid
  trap - EXIT
  trap '' INT TERM
  for pid in ${lab_pids[@]+"${lab_pids[@]}"}; do kill -TERM -- "-$pid" 2>/dev/null || kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  [ -z "$lab_kube" ] || scripts/lab/kubernetes stop "$lab_kube" 8>&- || true
  [ -z "$lab_ceph" ] || scripts/lab/ceph stop "$lab_ceph" 8>&- || true
  [ ! -e "$lab_ceph-second/ceph.conf" ] || scripts/lab/ceph stop "$lab_ceph-second" 8>&- || true
  rm -f "$lab_dir/lock.pid"
  exit "$rc"
}

# Runs a program as a child and waits for it. With setsid(1), the end of this script ends the program with all its children.
# If lab_modest is set, the program gets only the processor time that others leave. What setsid(1) starts has an autogroup of its own (sched(7)), and the
# niceness of that autogroup is the one that counts.
lab_run() {
  local rc=0
  if [ -n "${lab_modest:-}" ]; then set -- nice -n 19 sh -c '{ echo 19 >/proc/self/autogroup; } 2>/dev/null; exec "$@"' sh "$@"; fi
  setpriv --pdeathsig TERM setsid "$@" </dev/null 8>&- &
  lab_pids+=($!)
  wait $! || rc=$?
  unset 'lab_pids[-1]'
  return $rc
}

# Takes the options for scripts/lab/guest: the guest and its kernel. False for any other option.
lab_option() {  # OPTION VALUE
  case "$1" in
    --guest) export CORBD_LAB_GUEST=${2:?} ;;
    --kernel) export CORBD_LAB_KERNEL=${2:?} ;;
    *) return 1 ;;
  esac
}

# Starts a fresh cluster and the server of control.py. Exports CORBD_LAB_*. CORBD_OUT becomes build/lab/NAME/out, emptied.
lab_up() {  # NAME
  lab_ceph=$lab_dir/$1/ceph
  export CORBD_OUT=$lab_dir/$1/out
  local left
  # A killed run could not stop its cluster.
  for left in "$lab_dir"/*/ceph{,-second}; do [ ! -e "$left/ceph.conf" ] || scripts/lab/ceph stop "$left" 8>&-; done
  for left in "$lab_dir"/*/kubernetes; do [ ! -e "$left/kubeconfig" ] || scripts/lab/kubernetes stop "$left" 8>&-; done
  rm -rf "$CORBD_OUT"
  mkdir -p "$CORBD_OUT"
  lab_run scripts/lab/ceph start "$lab_ceph" || lab_fail "no test cluster"
  # shellcheck disable=SC1090
  eval "$(scripts/lab/ceph env "$lab_ceph" 8>&- | sed 's/^/export /')"
  setpriv --pdeathsig KILL python3 tests/lab/control.py "$CORBD_OUT" "$lab_ceph" 8>&- &
  lab_pids+=($!)
}

# shellcheck disable=SC1091
lab_debian() { (. /etc/os-release && echo "Debian ${VERSION_ID:-$VERSION_CODENAME}"); }

# Prints what the tests run on: this Debian, the Ceph that lab_up started, and the type of its keys (docs/sources.md#cephx-keys). With a word it names the
# guest's kernel, too.
lab_where() {  # [kernel]
  local type=unknown
  case "$CORBD_LAB_KEY" in AQ*) type=aes ;; Ag*) type=aes256k ;; esac
  echo "$(lab_debian), Ceph $(ceph --version | awk '{print $3}') with $type keys${1:+, $(
    scripts/lab/guest --prepare 2>&1 8>&- | sed -n 's/^guest: \([a-z]*\), \(Linux [^ ]*\).*/\2 (\1)/p')}"
}

# Starts a real API server and its controllers beside the cluster. Exports CORBD_LAB_KUBE*. Returns 77 if that is impossible here, with the reason in
# CORBD_LAB_KUBE_MISSING. Returns 1 if it should have worked and did not.
lab_kubernetes() {
  local log=$lab_dir/kubernetes.log rc=0
  lab_run scripts/lab/kubernetes build >"$log" || rc=$?
  cat "$log"
  [ $rc != 77 ] || { CORBD_LAB_KUBE_MISSING=$(sed -n '$s/^kubernetes: //p' "$log"); export CORBD_LAB_KUBE_MISSING; return 77; }
  [ $rc = 0 ] || return 1
  lab_kube=${lab_ceph%/ceph}/kubernetes
  lab_run scripts/lab/kubernetes start "$lab_kube" || return 1
  # shellcheck disable=SC1090
  eval "$(scripts/lab/kubernetes env "$lab_kube" 8>&- | sed 's/^/export /')"
}

# The program of version 0.1.0, for the story `versions_meet`: CORBD_LAB_FIRST, or CORBD_LAB_FIRST_MISSING says why there is none. It is found, or built, outside
# the guest.
lab_first() {
  local log=$lab_dir/released.log rc=0
  CORBD_LAB_FIRST=$(scripts/lab/released 0.1.0 2>"$log" 8>&-) || rc=$?
  export CORBD_LAB_FIRST
  [ $rc = 0 ] || { CORBD_LAB_FIRST_MISSING=$(sed -n '$s/^released: //p' "$log"); export CORBD_LAB_FIRST_MISSING; }
  [ $rc = 0 ] || [ $rc = 77 ] || { cat "$log" >&2; return 1; }
}

# Runs all stories, or those named, over as many boots as it takes: a story may leave a kernel behind that the next story cannot use.
# Prints their lines. Returns 1 if one failed. Results are in $CORBD_OUT/results.jsonl.
lab_stories() {
  local boot rc=0
  case " $* " in *" --long "* | *" versions_meet "*) lab_first || lab_fail "version 0.1.0 was not built" ;; esac
  for boot in 1 2 3 4 5 6; do
    rc=0
    lab_run scripts/lab/guest --timeout "${CORBD_LAB_TIMEOUT:-3600}" -- python3 -u tests/lab/run_in_guest.py "$@" || rc=$?
    case $rc in 75 | 124 | 125) echo "# boot $boot ended with $rc; going on in a new boot" ;; *) break ;; esac
  done
  [ "$rc" = 0 ] && ! grep -q '"status": "not ok"' "$CORBD_OUT/results.jsonl"
}

lab_failures() {  # FILE: prints sentence and reason of each story that failed, by results.jsonl
  python3 - "$1" <<'PY'
import json, os, sys
last = {}
for line in open(sys.argv[1]) if os.path.exists(sys.argv[1]) else ():
    entry = json.loads(line)
    last[entry["story"]] = entry
for entry in last.values():
    if entry["status"] in ("not ok", "begun"):
        print("%s: %s" % (entry.get("sentence", entry["story"]), entry.get("why", "it did not end")))
PY
}

lab_summary() {  # FILE: prints "passed failed skipped", by results.jsonl
  python3 - "$1" <<'PY'
import json, os, sys
status = {}
for line in open(sys.argv[1]) if os.path.exists(sys.argv[1]) else ():
    entry = json.loads(line)
    status[entry["story"]] = entry["status"]
count = list(status.values()).count
print(count("ok"), count("not ok") + count("begun"), count("skip"))
PY
}

# Configures and builds the preset. Prints every 5 s how far it is, but not beside other work (lab_modest). The log has everything. A failure shows its end.
lab_build() {  # PRESET [TARGET...]
  local preset=$1 log=$lab_dir/build-$1.log begin=$SECONDS rc=0
  shift
  echo "${0##*/}: building $preset (log: ${log#"$PWD/"})"
  : >"$log"
  if [ -z "${lab_modest:-}" ]; then
    lab_tell_progress "$log" 8>&- &
    lab_pids+=($!)
  fi
  { lab_run cmake --preset "$preset" && lab_run cmake --build --preset "$preset" -j "$(nproc)" ${1:+--target "$@"}; } >>"$log" 2>&1 || rc=$?
  if [ -z "${lab_modest:-}" ]; then
    kill "${lab_pids[-1]}" && wait "${lab_pids[-1]}" || true
    unset 'lab_pids[-1]'
  fi
  [ $rc = 0 ] || { tail -n 60 "$log" >&2; echo "${0##*/}: the $preset build failed" >&2; return 1; }
  echo "${0##*/}: built $preset in $((SECONDS - begin)) s"
}

lab_tell_progress() {  # LOG: that of cmake and ninja; runs until it is killed
  local begin=$SECONDS said=$SECONDS step
  trap - EXIT INT TERM
  while sleep 1; do
    [ $((SECONDS - said)) -ge 5 ] || continue
    said=$SECONDS
    step=$(sed -n 's|^\[\([0-9]*\)/\([0-9]*\)\] .*|\1 \2|p' "$1" | tail -n 1)
    if [ -n "$step" ]; then step="$((100 * ${step% *} / ${step#* })) % (${step/ / of })"; fi
    echo "${0##*/}: ${step:-configuring}, $((SECONDS - begin)) s"
  done
}
