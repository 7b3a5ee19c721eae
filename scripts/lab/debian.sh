# What Debian's archive has and this machine has not: sourced by whatever fetches more than scripts/setup installs. The archive is the one that
# this machine's own apt is told to use; nothing of the machine's apt is changed.

# The archive's address; nothing where apt knows none. Who is Debian is told by apt's lists; without them it is the first with this release.
debian_mirror() {
  local codename known
  # shellcheck disable=SC1091
  codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
  known=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' 'Origin: Debian' "Codename: $codename")
  [ -n "$known" ] || known=$(apt-get update --print-uris | sed -n "s|^'\(.*\)/dists/$codename/InRelease'.*|\1|p")
  echo "${known%%[[:space:]]*}"
}

# apt-get or apt-cache with the lists and the cache below FOLDER, for five minutes at most.
debian_apt() {  # FOLDER PROGRAM [ARGUMENT...]
  local folder=$1 program=$2
  shift 2
  timeout 300 "$program" -q -o Dir::Etc::sourcelist="$folder/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$folder/lists" \
    -o Dir::Cache="$folder/cache" -o APT::Sandbox::User=root "$@"
}

# Makes FOLDER for debian_apt, with the lists of one release, verified by the keys that this machine trusts.
debian_lists() {  # FOLDER deb|deb-src RELEASE
  local mirror keys=/usr/share/keyrings/debian-archive-keyring
  mirror=$(debian_mirror)
  [ -n "$mirror" ] || { echo "apt knows no archive of Debian" >&2; return 1; }
  if [ -e $keys.pgp ]; then keys=$keys.pgp; else keys=$keys.gpg; fi
  rm -rf "$1/lists"
  mkdir -p "$1/lists/partial" "$1/cache/archives/partial"
  echo "$2 [signed-by=$keys] $mirror $3 main" >"$1/sources.list"
  debian_apt "$1" apt-get update -o APT::Update::Error-Mode=any -o Acquire::Retries=2 -o Acquire::http::Timeout=30
}
