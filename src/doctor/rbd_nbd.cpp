// Looks for rbd-nbd, which stops at the WRITE_ZEROES that devices of corbd's offer with --no-rbd-nbd (rule 21).
#include <algorithm>
#include <cctype>
#include <filesystem>

#include "corbd/core/file.hpp"
#include "corbd/core/sysfs.hpp"
#include "corbd/device/values.hpp"
#include "inputs.hpp"

namespace corbd::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxCommandLine = 128 << 10;

/// Returns the path of the host's rbd-nbd, as the host sees it; empty: it has none.
std::string find_rbd_nbd(const std::string& root) {
  for (const char* folder : {"/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/bin", "/sbin"}) {
    std::error_code ignored;
    const std::string path = std::string(folder) + "/rbd-nbd";
    if (fs::exists(root + path, ignored)) return path;
  }
  return "";
}

/// Returns why an rbd-nbd of this node would stop serving; empty: it would not.
std::string harm(const Inputs& inputs) {
  constexpr const char* kStops = ", and rbd-nbd answers nothing after the first such request";
  if (inputs.no_rbd_nbd)
    return "the agent runs with --no-rbd-nbd, so its devices take WRITE_ZEROES" + std::string(kStops);
  if (inputs.zeroing_numbers.empty()) return "";
  return "an agent with --no-rbd-nbd left numbers that take WRITE_ZEROES (" + paths_of(inputs.zeroing_numbers) + ")" +
         kStops;
}

}  // namespace

std::string paths_of(const std::vector<std::uint32_t>& numbers) {
  std::vector<std::string> paths;
  for (const auto number : numbers) paths.push_back(device::path(number));
  return listed(paths);
}

bool is_ceph_csi(const std::string& process) {
  const auto words = read_file(process + "/cmdline", kMaxCommandLine);
  if (!words) return false;
  const auto program = fs::path(words->substr(0, words->find('\0'))).filename();
  return program == "cephcsi" && words->find("--nodeserver") != std::string::npos;
}

std::vector<std::string> signs_of_rbd_nbd(const std::string& root, const std::string& proc, const std::string& agent) {
  std::vector<std::string> signs;
  if (const auto path = find_rbd_nbd(root); !path.empty()) signs.push_back(path + " is installed");
  for (const auto& pid : sysfs::names_in(proc)) {
    if (!std::ranges::all_of(pid, [](unsigned char c) { return std::isdigit(c) != 0; })) continue;
    const std::string process = proc + "/" + pid;
    // Reading a command line may wait for the memory of its process, so ask for few.
    const auto name = sysfs::attribute(process + "/comm");
    if (name == "rbd-nbd") signs.push_back("process " + pid + " is rbd-nbd");
    if (name != "cephcsi" || !is_ceph_csi(process)) continue;
    // The agent may run under that name, and so may its keeper.
    if (const auto words = read_file(process + "/cmdline", kMaxCommandLine); words && *words != agent)
      signs.push_back("process " + pid + " is ceph-csi's node plugin, which starts rbd-nbd");
  }
  return signs;
}

Finding judge_rbd_nbd(const Inputs& inputs) {
  const char* check = "rbd-nbd";
  const std::string harmed = harm(inputs);
  if (harmed.empty()) return ok(check, "no device takes WRITE_ZEROES, so rbd-nbd may get any number");
  if (inputs.rbd_nbd.empty()) return ok(check, harmed + "; no rbd-nbd was seen here");
  return warning(check, harmed + ". On this node " + listed(inputs.rbd_nbd, "; "),
                 "remove rbd-nbd from this node; or take --no-rbd-nbd away (chart: nodeplugin.noRbdNbd), and then " +
                     std::string(kLoadNbdAnew));
}

}  // namespace corbd::doctor
