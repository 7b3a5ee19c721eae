# Fetches what Debian's archive has and this machine has not. Scripts source it that fetch more than scripts/setup installs. It uses the archive that
# this machine's own apt is configured for, and changes nothing of the machine's apt.

# Prints the archive's address, or nothing where apt knows none. apt's lists say which archive is Debian's. Without lists it is the first with this release.
debian_mirror() {
  local codename known
  # shellcheck disable=SC1091
  codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
  known=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' 'Origin: Debian' "Codename: $codename")
  [ -n "$known" ] || known=$(apt-get update --print-uris | sed -n "s|^'\(.*\)/dists/$codename/InRelease'.*|\1|p")
  echo "${known%%[[:space:]]*}"
}

# Runs apt-get or apt-cache with the lists and the cache below FOLDER, for five minutes at most.
debian_apt() {  # FOLDER PROGRAM [ARGUMENT...]
  local folder=$1 program=$2
  shift 2
  timeout 300 "$program" -q -o Dir::Etc::sourcelist="$folder/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$folder/lists" \
    -o Dir::Cache="$folder/cache" -o APT::Sandbox::User=root "$@"
}

# Makes FOLDER for debian_apt, with the lists of one release. The keys that this machine trusts verify them.
debian_lists() {  # FOLDER deb|deb-src RELEASE
  local mirror keys=/usr/share/keyrings/debian-archive-keyring
  mirror=$(debian_mirror)
  [ -n "$mirror" ] || { echo "apt knows no Debian archive" >&2; return 1; }
  if [ -e $keys.pgp ]; then keys=$keys.pgp; else keys=$keys.gpg; fi
  rm -rf "$1/lists"
  mkdir -p "$1/lists/partial" "$1/cache/archives/partial"
  echo "$2 [signed-by=$keys] $mirror $3 main" >"$1/sources.list"
  debian_apt "$1" apt-get update -o APT::Update::Error-Mode=any -o Acquire::Retries=2 -o Acquire::http::Timeout=30
}

# Makes FOLDER the root of another release: debootstrap's smallest. The log of a failure goes to stderr. Where this kernel does not start the programs of ARCH,
# only a command of scripts/lab/foreign can chroot into it.
debian_root() {  # FOLDER RELEASE LOG [ARCH]
  local mirror script=/usr/share/debootstrap/scripts/$2 native arch=${4:-}
  native=$(dpkg --print-architecture)
  command -v debootstrap >/dev/null || apt-get install -y -q --no-install-recommends debootstrap >"$3" 2>&1 || { tail -n 20 "$3" >&2; return 1; }
  # An older debootstrap does not know the release's name. It makes all of them as it makes sid.
  [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
  mirror=${CORBD_MIRROR:-$(debian_mirror)}
  [ -n "$mirror" ] || { echo "apt knows no Debian archive: name one in CORBD_MIRROR" | tee "$3" >&2; return 1; }
  rm -rf --one-file-system "$1"
  if [ "${arch:-$native}" = "$native" ]; then
    debootstrap --variant=minbase "$2" "$1" "$mirror" "$script" >"$3" 2>&1 || { tail -n 20 "$3" >&2; return 1; }
  else
    # In a container debootstrap makes no devices, which a user namespace does not allow. The first stage has made them.
    { debootstrap --foreign --arch="$arch" --variant=minbase "$2" "$1" "$mirror" "$script" &&
      scripts/lab/foreign unshare --pid --fork --kill-child chroot "$1" env container=lxc /debootstrap/debootstrap --second-stage; } >"$3" 2>&1 || { tail -n 20 "$3" >&2; return 1; }
  fi
  # A mirror whose lists are too old for apt serves the root if it serves this machine.
  apt-config dump Acquire::Check-Valid-Until >"$1/etc/apt/apt.conf.d/90corbd"
  # It may be made again at any time.
  echo force-unsafe-io >"$1/etc/dpkg/dpkg.cfg.d/90corbd"
}
