// Judges whether this node's kernel, and the oldest that docs/serving.md promises, can mount the volumes' filesystems.
// Pure.
#include "inputs.hpp"

namespace corbd::doctor {
namespace {

/// Judges staged volumes.
void staged(const Inputs& inputs, std::vector<Finding>& into) {
  const char* check = "filesystems";
  const std::string oldest = host::oldest_kernel();
  std::vector<std::string> newer, unread;
  std::size_t fit = 0;
  for (const auto& [volume, device, mounted, needs] : inputs.filesystems) {
    if (!needs) {
      unread.push_back(device + " (" + needs.error().text + ")");
    } else if (!mounted && !needs->beyond_running.empty()) {
      into.push_back(failure(
          "filesystem " + device,
          "the " + needs->fstype + " of volume " + volume + " is not mounted, and has " + needs->beyond_running +
              ", which Linux " + inputs.kernel +
              " of this node does not know unless the distribution has backported it",
          "use the volume on a node with a newer kernel, and copy its files into a new volume to use them here. If it "
          "is new, leave these features out by mkfsOptions or --mkfs-options, then delete and recreate the claim"));
    } else if (!needs->beyond_oldest.empty()) {
      newer.push_back(needs->fstype + " of volume " + volume + " on " + device + " has " + needs->beyond_oldest);
    } else if (!needs->fstype.empty()) {
      ++fit;
    }
  }
  const std::string silent = unread.empty() ? "" : "; not read: " + listed(unread);
  if (!newer.empty())
    into.push_back(warning(check, oldest + " does not mount all of them: " + listed(newer, "; ") + silent,
                           "keep these volumes on nodes whose kernel has the features. For nodes with an older one, "
                           "copy the files into a new volume, which is made without them unless mkfsOptions or "
                           "--mkfs-options ask for them"));
  else if (inputs.filesystems.empty())
    into.push_back(ok(check, "no filesystem is staged here"));
  else
    into.push_back(ok(check, std::to_string(fit) + " staged filesystems mount on " + oldest + " and newer" + silent));
}

std::string made_by(const NewFilesystem& made) {
  return "mkfs." + made.fstype + (made.options.empty() ? "" : " with --mkfs-options " + made.options);
}

/// Judges new volumes.
void made_here(const Inputs& inputs, std::vector<Finding>& into) {
  const char* check = "mkfs";
  if (inputs.wrong_mkfs_options)
    into.push_back(warning(check, "the agent's --mkfs-options are not understood: " + *inputs.wrong_mkfs_options,
                           "correct the agent's --mkfs-options"));
  const std::string oldest = host::oldest_kernel();
  std::vector<std::string> fit, untried;
  for (const auto& made : inputs.new_filesystems) {
    if (!made.needs) {
      untried.push_back(made.needs.error().text);
      continue;
    }
    const auto& [fstype, beyond_running, beyond_oldest] = *made.needs;
    const std::string remedy = made.options.empty()
                                   ? "set --mkfs-options " + fstype +
                                         ":OPTIONS without these features, and report this: this mkfs is newer than "
                                         "corbd"
                                   : "leave these features out of --mkfs-options";
    if (!beyond_running.empty())
      into.push_back(failure(check,
                             made_by(made) + " makes " + beyond_running + ", and this is Linux " + inputs.kernel +
                                 ": a new volume does not mount here, unless the distribution has backported them",
                             remedy));
    else if (!beyond_oldest.empty())
      into.push_back(warning(check,
                             made_by(made) + " makes " + beyond_oldest +
                                 ": a new volume does not mount on nodes with an older kernel, such as " + oldest,
                             remedy));
    else
      fit.push_back(fstype);
  }
  if (!fit.empty()) into.push_back(ok(check, "new filesystems mount on " + oldest + " and newer: " + listed(fit)));
  if (!untried.empty()) into.push_back(ok(check, "not tried: " + listed(untried, "; ")));
}

}  // namespace

void judge_filesystems(const Inputs& inputs, std::vector<Finding>& into) {
  if (inputs.admin) staged(inputs, into);
  made_here(inputs, into);
}

}  // namespace corbd::doctor
