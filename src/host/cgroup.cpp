// ops::limit_io: a line of io.max in a pod's cgroup, as kubelet names it with either of its cgroup drivers.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

#include "corbd/core/fd.hpp"
#include "failure.hpp"
#include "ops.hpp"

namespace corbd::host::ops {
namespace {

bool is_uid(const std::string& text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char at) { return std::isalnum(at) != 0 || at == '-'; });
}

/// One for each quality of service: guaranteed, burstable, best effort.
std::array<std::string, 6> folders(const std::string& uid) {
  std::string unit = uid;
  std::ranges::replace(unit, '-', '_');
  return {"kubepods.slice/kubepods-pod" + unit + ".slice",
          "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + unit + ".slice",
          "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + unit + ".slice",
          "kubepods/pod" + uid,
          "kubepods/burstable/pod" + uid,
          "kubepods/besteffort/pod" + uid};
}

}  // namespace

result<> limit_io(const std::string& cgroups, const std::string& pod_uid, const std::string& line,
                  std::chrono::milliseconds waits_for_cgroup) {
  constexpr std::chrono::milliseconds kAgain{200};
  if (!is_uid(pod_uid))
    return Error{errc::invalid_argument,
                 "\"" + pod_uid + "\", which kubelet sent as csi.storage.k8s.io/pod.uid, is not the UID of a pod"};
  const std::string doing = "limiting the I/O of pod " + pod_uid + ": ";
  if (::access((cgroups + "/cgroup.controllers").c_str(), F_OK) != 0)
    return Error{errc::unimplemented, doing + cgroups + " is not cgroup v2: boot the node with cgroup v2"};
  for (auto left = waits_for_cgroup;; left -= kAgain) {
    for (const auto& folder : folders(pod_uid)) {
      const std::string file = cgroups + "/" + folder + "/io.max";
      const Fd open(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
      if (!open && errno == ENOENT) continue;
      if (!open) return failure(doing + "opening " + file, errno);
      if (::write(open.get(), line.data(), line.size()) < 0)
        return failure(doing + "writing \"" + line + "\" to " + file, errno);
      return {};
    }
    if (left <= std::chrono::milliseconds(0)) break;
    std::this_thread::sleep_for(kAgain);
  }
  return Error{errc::not_found, doing + "no cgroup of it below " + cgroups +
                                    " has io.max: enable the controller io for the cgroups of pods"};
}

}  // namespace corbd::host::ops
