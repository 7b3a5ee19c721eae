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
