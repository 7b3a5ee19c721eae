// Implements ops::limit_io: writes a line of io.max into a pod's cgroup, as kubelet names it with either of its cgroup
// drivers.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <utility>

#include "corbd/core/fd.hpp"
#include "failure.hpp"
#include "ops.hpp"

namespace corbd::host::ops {
namespace {

bool is_uid(const std::string& text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char at) { return std::isalnum(at) != 0 || at == '-'; });
}

namespace fs = std::filesystem;

struct Names {
  std::string plain;    ///< with the driver cgroupfs: "pod0a1b-..."
  std::string of_unit;  ///< the end of a systemd unit: "-pod0a1b_....slice"
};

Names names_of(const std::string& uid) {
  std::string unit = uid;
  std::ranges::replace(unit, '-', '_');
  return {"pod" + uid, "-pod" + unit + ".slice"};
}

/// Returns a folder for each quality of service: guaranteed, burstable, best effort.
std::array<std::string, 6> usual_folders(const Names& pod) {
  return {"kubepods.slice/kubepods" + pod.of_unit,
          "kubepods.slice/kubepods-burstable.slice/kubepods-burstable" + pod.of_unit,
          "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort" + pod.of_unit,
          "kubepods/" + pod.plain,
          "kubepods/burstable/" + pod.plain,
          "kubepods/besteffort/" + pod.plain};
}

struct Found {
  std::string folder;     ///< cgroup of the pod; empty: there is none
  bool has_pods = false;  ///< there are cgroups of pods
};

/// Searches below kubelet's cgroupRoot, whatever that is: "kubelet/kubepods/burstable/pod...", or
/// "kubelet.slice/kubelet-kubepods.slice/...". Cgroups that a pod made in its own, and services, are skipped.
Found search(const std::string& cgroups, const Names& pod) {
  constexpr std::size_t deepest = 6, most = 10'000;
  Found found;
  std::deque<std::pair<fs::path, std::size_t>> next{{cgroups, 0}};
  for (std::size_t seen = 0; !next.empty(); next.pop_front()) {
    const auto [folder, depth] = next.front();
    std::error_code failed;
    for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
      const std::string name = at->path().filename();
      if (!at->is_directory(failed) || at->is_symlink(failed) || ++seen > most) continue;
      if (name == pod.plain || name.ends_with(pod.of_unit)) found.folder = at->path();
      if (name == "kubepods" || name.ends_with("kubepods.slice")) found.has_pods = true;
      const bool of_a_pod = name.starts_with("pod") || name.find("-pod") != std::string::npos;
      const bool leaf = name.ends_with(".service") || name.ends_with(".scope");
      if (depth < deepest && !of_a_pod && !leaf) next.emplace_back(at->path(), depth + 1);
    }
    if (!found.folder.empty()) break;
  }
  return found;
}

Found find_pod(const std::string& cgroups, const Names& pod) {
  for (const auto& folder : usual_folders(pod))
    if (::access((cgroups + "/" + folder).c_str(), F_OK) == 0) return {cgroups + "/" + folder, true};
  return search(cgroups, pod);
}

}  // namespace

result<> limit_io(const std::string& cgroups, const std::string& pod_uid, const std::string& line) {
  if (!is_uid(pod_uid))
    return Error{errc::invalid_argument,
                 "\"" + pod_uid + "\", which kubelet sent as csi.storage.k8s.io/pod.uid, is not the UID of a pod"};
  const std::string doing = "limiting the I/O of pod " + pod_uid + ": ";
  if (::access((cgroups + "/cgroup.controllers").c_str(), F_OK) != 0)
    return Error{errc::unimplemented, doing + cgroups + " is not cgroup v2: boot the node with cgroup v2"};
  const auto pod = find_pod(cgroups, names_of(pod_uid));
  if (!pod.has_pods)
    return Error{errc::failed_precondition, doing + "there are no cgroups of pods below " + cgroups +
                                                ": mount the host's /sys into the container"};
  if (pod.folder.empty()) return Error{errc::not_found, doing + "no cgroup below " + cgroups + " has its name"};
  const std::string file = pod.folder + "/io.max";
  const Fd open(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  if (!open && errno == ENOENT)
    return Error{errc::not_found,
                 doing + pod.folder + " has no io.max: enable the controller io for the cgroups of pods"};
  if (!open) return failure(doing + "opening " + file, errno);
  if (::write(open.get(), line.data(), line.size()) < 0)
    return failure(doing + "writing \"" + line + "\" to " + file, errno);
  return {};
}

}  // namespace corbd::host::ops
