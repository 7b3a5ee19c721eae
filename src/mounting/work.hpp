// Actions of the commands about mounts, for one mount and for all of them.
#pragma once

#include <string>

#include "corbd/core/task.hpp"
#include "corbd/mounting/mounting.hpp"
#include "mounter.hpp"

namespace corbd::mounting {

/// Prints it on stderr.
void complain(const std::string& text);

/// Returns a sentence about what was done.
task<result<std::string>> mount_one(Mounter& mounter, MountSpec spec, Until until, Keeps keeps = Keeps::type);
task<result<std::string>> unmount_one(Mounter& mounter, std::string dir, Until until);
task<result<std::string>> expand_one(Mounter& mounter, std::string dir, Until until);

/// Each of these reports the result for every mount itself.
struct Results {
  int failed = 0;
};
task<result<Results>> mount_all(Mounter& mounter, const Options& ask, Until until);
task<result<Results>> unmount_all(Mounter& mounter, const Options& ask, Until until);

}  // namespace corbd::mounting
