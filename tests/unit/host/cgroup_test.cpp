// The limits of a pod's I/O, in folders as kubelet makes them.
#include <filesystem>
#include <fstream>

#include "ground.hpp"
#include "ops.hpp"

using namespace corbd;
using corbd::test::Folder;
namespace ops = corbd::host::ops;

namespace {

constexpr const char *kUid = "0a1b2c3d-0000-4000-8000-00000000000f",
                     *kLine = "43:0 rbps=max wbps=max riops=max wiops=100";

struct Cgroups {
  Cgroups() { std::ofstream(folder.path() + "/cgroup.controllers") << "io memory\n"; }
  /// Of the pod, with io.max.
  std::string add(const std::string& place) {
    std::filesystem::create_directories(folder.path() + "/" + place);
    std::string file = folder.path() + "/" + place + "/io.max";
    std::ofstream(file).flush();
    return file;
  }
  Folder folder;
};

std::string line_of(const std::string& file) {
  std::string text;
  std::getline(std::ifstream(file), text);
  return text;
}

}  // namespace

TEST_CASE("a pod's limit goes into the one of six cgroups that kubelet made for it") {
  const char* place = GENERATE(
      "kubepods.slice/kubepods-pod0a1b2c3d_0000_4000_8000_00000000000f.slice",
      "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_0000_4000_8000_00000000000f.slice",
      "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0a1b2c3d_0000_4000_8000_00000000000f.slice",
      "kubepods/pod0a1b2c3d-0000-4000-8000-00000000000f", "kubepods/burstable/pod0a1b2c3d-0000-4000-8000-00000000000f",
      "kubepods/besteffort/pod0a1b2c3d-0000-4000-8000-00000000000f");
  Cgroups cgroups;
  const std::string file = cgroups.add(place);
  REQUIRE(ops::limit_io(cgroups.folder.path(), kUid, kLine));
  CHECK(line_of(file) == kLine);
}

TEST_CASE("a pod's cgroup is found below another cgroupRoot of kubelet's", "[failure:212]") {
  const char* place = GENERATE("kubelet/kubepods/burstable/pod0a1b2c3d-0000-4000-8000-00000000000f",
                               "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
                               "kubelet-kubepods-burstable-pod0a1b2c3d_0000_4000_8000_00000000000f.slice",
                               "a/b/kubepods/pod0a1b2c3d-0000-4000-8000-00000000000f");
  Cgroups cgroups;
  cgroups.add("system.slice/ssh.service");
  cgroups.add("kubelet/kubepods/burstable/podother/container");
  const std::string file = cgroups.add(place);
  REQUIRE(ops::limit_io(cgroups.folder.path(), kUid, kLine));
  CHECK(line_of(file) == kLine);
}

TEST_CASE("a cgroup that a pod made in its own with the name of another pod gets no limit") {
  Cgroups cgroups;
  const std::string inside = cgroups.add("kubepods/podother/pod" + std::string(kUid));
  const std::string unit = cgroups.add("kubepods/x.scope/pod" + std::string(kUid));
  CHECK(ops::limit_io(cgroups.folder.path(), kUid, kLine).error().code == errc::not_found);
  CHECK(line_of(inside).empty());
  CHECK(line_of(unit).empty());
}

TEST_CASE("a node whose pods have no cgroups that can be seen limits none, and nobody waits for one", "[failure:212]") {
  Cgroups cgroups;
  cgroups.add("system.slice/ssh.service");
  CHECK(ops::limit_io(cgroups.folder.path(), kUid, kLine).error().code == errc::failed_precondition);
}

TEST_CASE("a pod that is gone is not found") {
  Cgroups cgroups;
  cgroups.add("kubepods/podother");
  CHECK(ops::limit_io(cgroups.folder.path(), kUid, kLine).error().code == errc::not_found);
}

TEST_CASE("a node with cgroup v1 limits no pod") {
  const Folder empty;
  CHECK(ops::limit_io(empty.path(), kUid, kLine).error().code == errc::unimplemented);
}

TEST_CASE("a limit that the kernel refuses is an error with the line and the file") {
  Cgroups cgroups;
  std::filesystem::remove(cgroups.add("kubepods/pod" + std::string(kUid)));
  // Opens and takes nothing, as io.max does with a line that it does not understand.
  std::filesystem::create_symlink("/dev/full", cgroups.folder.path() + "/kubepods/pod" + kUid + "/io.max");
  const auto limited = ops::limit_io(cgroups.folder.path(), kUid, kLine);
  REQUIRE_FALSE(limited);
  CHECK_THAT(limited.error().text, ContainsSubstring(kLine) && ContainsSubstring("/io.max"));
}

TEST_CASE("what is not the UID of a pod is refused") {
  Cgroups cgroups;
  for (const char* uid : {"", "../x", "a/b", "a.b"})
    CHECK(ops::limit_io(cgroups.folder.path(), uid, kLine).error().code == errc::invalid_argument);
}
