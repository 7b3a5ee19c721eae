// The shell's port to kubelet's paths and image-meta.json.
#pragma once

#include <string>

#include "corbd/agent/options.hpp"
#include "corbd/core/blocking_pool.hpp"
#include "corbd/volume/ports.hpp"

namespace corbd::agent {

class NodeFiles final : public volume::NodeFiles {
 public:
  NodeFiles(const Options& options, BlockingPool& pool);
  /// kubelet's, as mountinfo names it.
  const std::string& folder() const { return real_folder_; }
  std::string real_path(std::string path) const override;
  task<result<>> check_path(std::string path, bool must_exist) override;
  bool busy(const std::string& busy_file) const override;
  task<result<std::optional<cephcsi::Stash>>> read_stash(std::string staging_path) override;
  task<result<>> write_stash(std::string staging_path, cephcsi::Stash stash) override;
  task<result<>> drop_stash(std::string staging_path, std::string log) override;

 private:
  const Options& options_;
  const std::string real_folder_;
  BlockingPool& pool_;
};

}  // namespace corbd::agent
