#include "node_files.hpp"

#include <filesystem>

#include "corbd/volume/stash_file.hpp"

namespace corbd::agent {
namespace {

/// The name that mountinfo uses for what is below the folder.
std::string real_folder(const std::string& folder) {
  std::error_code failed;
  const auto real = std::filesystem::canonical(folder, failed);
  return failed ? folder : real.string();
}

}  // namespace

NodeFiles::NodeFiles(const Options& options, BlockingPool& pool)
    : options_(options), real_folder_(real_folder(options.kubelet_dir)), pool_(pool) {}

std::string NodeFiles::real_path(std::string path) const {
  return host::real_path(path, options_.kubelet_dir, real_folder_);
}

task<result<>> NodeFiles::check_path(std::string path, bool must_exist) {
  auto job = [root = real_folder_, path, must_exist] { return host::check_path(root, path, must_exist); };
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
