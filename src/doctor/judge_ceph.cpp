// Judges whether this program's Ceph, the volumes' keys and the kernel fit together. Pure.
#include <algorithm>
#include <iterator>

#include "corbd/krbd/sysfs.hpp"
#include "inputs.hpp"

namespace corbd::doctor {
namespace {

/// Whether librados of that release knows keys of type aes256k (docs/sources.md#cephx-keys).
bool knows_aes256k(const Version& release) {
  return release >= Version{20, 2, 4} || (release[0] == 19 && release >= Version{19, 2, 6});
}
constexpr const char* kOtherKey =
    "or give the Ceph user a key of the type aes (`ceph auth get-or-create` with --key-type=aes) and put it into its "
    "Secret or keyring";

/// Bugs of librbd that lose data, with the first fixed release of each line (docs/sources.md#librbd-bugs). Lines before
/// the first of them are never fixed, those after the last have the fix.
struct Bug {
  const char* what;
  std::vector<Version> cured;
};
const std::vector<Bug>& bugs() {
  static const std::vector<Bug> all{
      {"flattening a clone whose object map is inconsistent loses data (Ceph tracker 68998)", {{18, 2, 5}, {19, 2, 1}}},
      {"a snapshot that is taken under I/O can have a wrong object map, and an incremental backup of it lacks data "
       "(tracker 61616)",
       {{16, 2, 14}, {17, 2, 7}, {18, 2, 0}}},
  };
  return all;
}

bool has_bug(const Version& release, const Bug& bug) {
  const auto line = std::ranges::find(bug.cured, release[0], [](const Version& version) { return version[0]; });
  return line == bug.cured.end() ? release[0] < bug.cured.front()[0] : release < *line;
}

/// An unknown release is not judged.
Finding librbd(const Inputs& inputs) {
  const char* check = "librbd";
  std::vector<std::string> found;
  if (!inputs.ceph_release.empty())
    for (const Bug& bug : bugs())
      if (has_bug(version_of(inputs.ceph_release), bug)) found.emplace_back(bug.what);
  if (found.empty()) return ok(check, "no bug is known here that loses data");
  return warning(
      check, "Ceph " + inputs.ceph_release + ": " + listed(found, "; "),
      "use an image or a package with Ceph 18.2.5, 19.2.1 or newer. Until then flatten no image by hand that "
      "is in use here, and check its object map first (`rbd object-map check`)");
}

void split_reads(const Inputs& inputs, std::vector<Finding>& into) {
  if (inputs.split_reads.empty() || inputs.split_reads == "0") return;
  into.push_back(warning("split-reads",
                         "ceph.conf sets osd_min_split_replica_read_size to " + inputs.split_reads +
                             ", which corrupts what other clients of this node read; corbd's own clients ignore it",
                         "remove it there, and from the cluster: `ceph config rm client "
                         "osd_min_split_replica_read_size`"));
}

std::string some_of(const std::vector<std::string>& ids) {
  constexpr std::ptrdiff_t few = 3;
  if (std::ssize(ids) <= few) return listed(ids);
  return listed({ids.begin(), ids.begin() + few}) + " and " + std::to_string(std::ssize(ids) - few) + " more";
}

/// Judges the keyrings of a host, by the type of their keys.
void judge_keyrings(const Inputs& inputs, std::vector<Finding>& into) {
  for (const auto& wrong : inputs.wrong_mounts)
    into.push_back(warning("mounts.d", wrong, "correct it: `corbd mount --all` fails for it, also at boot"));
  for (const auto& one : inputs.keys)
    if (one.from != KeySeen::From::volume && one.type == KeyType::unknown)
      into.push_back({"keyrings", one.from == KeySeen::From::mount ? Grade::failure : Grade::warning,
                      "the key of " + one.of + " is not a Ceph key",
                      "copy it as `ceph auth get` prints it; `corbd mount` fails with it"});
  std::string said;
  for (const auto& [type, name] : {std::pair(KeyType::aes, "aes"), std::pair(KeyType::aes256k, "aes256k")}) {
    std::vector<std::string> all;
    for (const auto& one : inputs.keys)
      if (one.from != KeySeen::From::volume && one.type == type) all.push_back(one.of);
    if (!all.empty()) said += (said.empty() ? "" : "; ") + std::string(name) + ": " + some_of(all);
  }
  if (!said.empty()) into.push_back(ok("keyrings", said));
}

}  // namespace

void judge_ceph(const Inputs& inputs, std::vector<Finding>& into) {
  const bool known = !inputs.ceph_release.empty();
  into.push_back(ok("librados", known ? "Ceph " + inputs.ceph_release + " (" + inputs.ceph_libraries + ")"
                                      : inputs.ceph_libraries + ", of a release that it does not tell"));
  into.push_back(librbd(inputs));
  split_reads(inputs, into);
  const bool library = !known || knows_aes256k(version_of(inputs.ceph_release));
  const bool kernel = krbd::knows_aes256k(inputs.kernel);
  std::size_t old_keys = 0, new_keys = 0;
  std::vector<std::string> by_library, by_kernel, unused;
  for (const auto& one : inputs.keys) {
    if (one.type == KeyType::aes) ++old_keys;
    if (one.type != KeyType::aes256k) continue;
    ++new_keys;
    if (one.by_kernel && !kernel) by_kernel.push_back(one.of);
    // The agent itself opens every image, also for the kernel's client.
    if (!library) (one.from == KeySeen::From::keyring ? unused : by_library).push_back(one.of);
  }
  judge_keyrings(inputs, into);
  const char* check = "cephx-keys";
  if (!by_library.empty())
    into.push_back(failure(check,
                           "librados of Ceph " + inputs.ceph_release + " cannot use the aes256k key of " +
                               some_of(by_library) + ": the first that can are 19.2.6 and 20.2.4",
                           std::string("use an image or a package with Ceph 19.2.6, 20.2.4 or newer, ") + kOtherKey));
  if (!by_kernel.empty())
    into.push_back(
        failure(check,
                "the RBD client of Linux " + inputs.kernel + " cannot use the aes256k key of " + some_of(by_kernel) +
                    ", which mounter rbd serves: the first that can is 7.0",
                std::string("let corbd serve them (mounter: rbd-nbd), run Linux 7.0 or newer, ") + kOtherKey));
  if (!unused.empty())
    into.push_back(warning(check,
                           "librados of Ceph " + inputs.ceph_release + " cannot use the aes256k key of " +
                               some_of(unused) + ", which no mount uses yet",
                           std::string("use a package with Ceph 19.2.6, 20.2.4 or newer, ") + kOtherKey));
  if (!by_library.empty() || !by_kernel.empty() || !unused.empty()) return;
  std::string said = std::to_string(old_keys) + " of type aes, " + std::to_string(new_keys) + " of type aes256k";
  if (!library) said += "; this librados takes no aes256k";
  if (!kernel) said += "; on this kernel, mounter rbd takes no aes256k";
  into.push_back(ok(check, said));
}

}  // namespace corbd::doctor
