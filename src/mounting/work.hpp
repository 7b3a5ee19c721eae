// Actions of the commands about mounts, for one mount and for all of them.
#pragma once

#include <string>
#include <vector>

#include "corbd/core/async_lock.hpp"
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

/// One of several mounts.
struct Task {
  std::string what;  ///< for errors: the file, or the target
  result<MountSpec> spec;
  bool unmount = false;  ///< an unmount had begun before
};
/// Lists files first. A claim that no file names was mounted by hand.
task<result<std::vector<Task>>> all_tasks(Mounter& mounter, const Options& ask, Until until);
/// Takes a place among those under way at the same time.
task<result<Slots::Guard>> take_turn(Slots& slots, Until until);

/// Each of these reports the result for every mount itself.
struct Results {
  int failed = 0;
};
task<result<Results>> mount_all(Mounter& mounter, const Options& ask, Until until);
/// Mounts nothing: repeats the stage of what is mounted, with the present keys.
task<result<Results>> refresh_all(Mounter& mounter, const Options& ask, Until until);
task<result<Results>> unmount_all(Mounter& mounter, const Options& ask, Until until);

}  // namespace corbd::mounting
