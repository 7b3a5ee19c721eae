// What the commands about mounts do, with one mount and with all of them.
#pragma once

#include <string>

#include "corbd/cli/mounts.hpp"
#include "corbd/core/task.hpp"
#include "mounter.hpp"

namespace corbd::cli {

/// Says it on stderr.
void complain(const std::string& text);

/// What was done, for people.
task<result<std::string>> mount_one(Mounter& mounter, Mounts::Wish wish, Until until);
task<result<std::string>> unmount_one(Mounter& mounter, std::string dir, Until until);
task<result<std::string>> expand_one(Mounter& mounter, std::string dir, Until until);

/// These say themselves what became of each.
struct Results {
  int failed = 0;
};
task<result<Results>> mount_all(Mounter& mounter, const Mounts& ask, Until until);
task<result<Results>> unmount_all(Mounter& mounter, const Mounts& ask, Until until);

}  // namespace corbd::cli
