// The shell's port to kubelet's paths and image-meta.json.
#pragma once

#include <string>
#include <vector>

#include "corbd/agent/options.hpp"
#include "corbd/core/blocking_pool.hpp"
#include "corbd/volume/ports.hpp"

namespace corbd::agent {

class NodeFiles final : public volume::NodeFiles {
 public:
  NodeFiles(const Options& options, BlockingPool& pool);
  std::string real_path(std::string path) const override;
  task<result<>> check_path(std::string path, bool must_exist) override;
  bool busy(const std::string& busy_file) const override;
  task<result<std::optional<cephcsi::Stash>>> read_stash(std::string staging_path) override;
  task<result<>> write_stash(std::string staging_path, cephcsi::Stash stash) override;
  task<result<>> drop_stash(std::string staging_path, std::string log) override;

 private:
  /// kubelet's folder, and the two folders in it that may be links, because an operator moves them to another disk.
  /// They are resolved once, at the start, when only root may write kubelet's folder.
  struct Folder {
    std::string given, real;  ///< real: the name in mountinfo
  };
  static std::vector<Folder> folders_of(const std::string& kubelet_dir);
  const std::vector<Folder> folders_;
  BlockingPool& pool_;
};

}  // namespace corbd::agent
