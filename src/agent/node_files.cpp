#include "node_files.hpp"

#include <filesystem>

#include "corbd/volume/stash_file.hpp"

namespace corbd::agent {
namespace {

/// Returns the name that mountinfo uses for paths below the folder.
std::string real_folder(const std::string& folder) {
  std::error_code failed;
  const auto real = std::filesystem::canonical(folder, failed);
  return failed ? folder : real.string();
}

}  // namespace

std::vector<NodeFiles::Folder> NodeFiles::folders_of(const std::string& kubelet_dir) {
  const std::string real = real_folder(kubelet_dir);
  std::vector<Folder> folders;
  for (const char* name : {"/pods", "/plugins"}) {
    const std::string below = real_folder(real + name);
    // Without kubelet (--standalone) a folder of that name has no meaning.
    if (real == "/" || below == real + name) continue;
    folders.push_back({kubelet_dir + name, below});
    folders.push_back({real + name, below});
  }
  folders.push_back({kubelet_dir, real});
  return folders;
}

NodeFiles::NodeFiles(const Options& options, BlockingPool& pool)
    : folders_(folders_of(options.kubelet_dir)), pool_(pool) {}

std::string NodeFiles::real_path(std::string path) const {
  for (const auto& folder : folders_)
    if (host::is_below(path, folder.given)) return host::real_path(path, folder.given, folder.real);
  return host::plain_path(path);
}

task<result<>> NodeFiles::check_path(std::string path, bool must_exist) {
  std::string root = folders_.back().real;
  for (const auto& folder : folders_)
    if (host::is_below(path, folder.real)) {
      root = folder.real;
      break;
    }
  auto job = [root, path, must_exist] { return host::check_path(root, path, must_exist); };
  return pool_.run(std::move(job), {}, "looking at a path");
}

bool NodeFiles::busy(const std::string& busy_file) const { return host::busy(busy_file); }

task<result<std::optional<cephcsi::Stash>>> NodeFiles::read_stash(std::string staging_path) {
  return pool_.run([staging_path] { return volume::read_stash(staging_path); }, {}, "reading image-meta.json");
}

task<result<>> NodeFiles::write_stash(std::string staging_path, cephcsi::Stash stash) {
  auto job = [staging_path, stash] { return volume::write_stash(staging_path, stash); };
  return pool_.run(std::move(job), {}, "writing image-meta.json");
}

task<result<>> NodeFiles::drop_stash(std::string staging_path, std::string log) {
  auto job = [staging_path, log] { return volume::drop_stash(staging_path, log); };
  return pool_.run(std::move(job), {}, "removing image-meta.json");
}

}  // namespace corbd::agent
