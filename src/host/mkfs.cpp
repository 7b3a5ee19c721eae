// Implements ops::mkfs, ops::fsck, ops::check and ops::inspect, with ceph-csi's arguments for the same tools.
#include "corbd/core/log.hpp"
#include "filesystem_types.hpp"
#include "mkfs_options.hpp"
#include "ops.hpp"
#include "run.hpp"

namespace corbd::host::ops {
namespace {

std::string describe(const Probe& found) {
  switch (found.kind) {
    case Probe::Kind::nothing:
      return "nothing";
    case Probe::Kind::filesystem:
      return "a filesystem, " + found.type;
    case Probe::Kind::partitions:
      return "a partition table, " + found.type;
    case Probe::Kind::other:
      return found.type;
    case Probe::Kind::ambivalent:
      return "more than one signature";
  }
  return "something";
}

constexpr int kCorrected = 1, kErrorsLeft = 4;  ///< fsck(8)'s exit codes

void log_ended(const std::string& device, const Ended& ended) {
  if (ended.code == 0) return;
  log::write(ended.code == kCorrected ? log::Level::info : log::Level::warning, "fsck.ended",
             {{"device", device}, {"code", ended.code}, {"output", ended.output}});
}

}  // namespace

result<> run_mkfs(const std::string& device, const FilesystemType& type, const std::string& options, MkfsFor made_for) {
  Arguments argv{"mkfs." + std::string(type.name)};
  for (auto& argument : options.empty() ? type.mkfs_options(made_for.zeroes) : arguments_of(options))
    argv.push_back(std::move(argument));
  if (made_for.files_encrypted) argv.emplace_back(type.encryption_option);
  argv.push_back(device);
  const auto ended = run(argv, Capture::errors);
  if (!ended && ended.error().code == errc::not_found) return Error{errc::failed_precondition, ended.error().text};
  if (!ended) return ended.error();
  if (ended->code == 0) return {};
  const errc code = ended->signal != 0 ? errc::unavailable : errc::failed_precondition;
  return Error{code, argv.front() + " " + device + ": " + host::describe(*ended)};
}

result<std::string> mkfs(const std::string& device, const std::string& fstype, const std::string& options,
                         MkfsFor made_for) {
  const auto* type = filesystem_type(fstype);
  if (type == nullptr)
    return Error{errc::invalid_argument,
                 "filesystem type \"" + fstype + "\" is not known: this agent knows " + known_filesystems()};
  if (made_for.files_encrypted && type->encryption_option.empty())
    return Error{errc::invalid_argument,
                 "a filesystem of type " + fstype + " cannot encrypt files: use " + encrypting_filesystems()};
  const auto found = probe(device);
  if (!found) return found.error();
  if (found->kind != Probe::Kind::nothing)
    return Error{errc::not_empty, "refusing to format " + device + ": it already holds " + describe(*found)};
  if (auto made = run_mkfs(device, *type, options, made_for); !made) return made.error();
  // A newer mkfs may have default features that none of our options keeps out.
  return features_beyond(device, type->features, kOldestKernel);
}

// fsck(8) returns 1 for errors corrected, 4 for errors left. As in ceph-csi's mount library, the mount finds out about
// any other exit code. We run the checker itself: fsck(8) in front of it would be one process more.
result<> fsck(const std::string& device, const std::string& fstype, const std::string& options) {
  constexpr int left_uncorrected = 4, could_not_work = 8 | 16;
  const std::string tool = "fsck." + fstype;
  const std::string with = options.empty() ? "-a" : options;
  Arguments argv = arguments_of(with);
  argv.insert(argv.begin(), tool);
  argv.push_back(device);
  const auto ended = run(argv, Capture::everything);
  if (!ended && ended.error().code == errc::not_found) {
    log::warning("fsck.missing", {{"device", device}, {"tool", tool}});
    return {};
  }
  if (!ended) return ended.error();
  if (ended->signal != 0)
    return Error{errc::unavailable, tool + " " + with + " " + device + ": " + host::describe(*ended)};
  if ((ended->code & left_uncorrected) != 0)
    return Error{errc::failed_precondition, tool + " " + with + " found errors on " + device +
                                                " that it could not correct: " + way_to_repair(fstype) + ": " +
                                                host::describe(*ended)};
  // With an operator's own options, a checker that cannot work would leave every volume unchecked.
  if (!options.empty() && (ended->code & could_not_work) != 0)
    return Error{errc::failed_precondition, tool + " " + with + " did not check " + device +
                                                ": correct the agent's --fsck-options: " + host::describe(*ended)};
  log_ended(device, *ended);
  return {};
}

// A checker that is missing or cannot work, for example because somebody uses the device, has shown neither a good
// filesystem nor a damaged one, and here nothing may rest on a guess.
result<std::string> check(const std::string& device, const std::string& fstype) {
  const auto* type = filesystem_type(fstype);
  if (type == nullptr || type->check.empty()) return std::string();
  const std::string tool = "fsck." + fstype;
  const auto marked = [&] { return type->has_errors != nullptr && type->has_errors(device); };
  // A filesystem that its kernel marked is damaged whatever its journal has, and nothing writes it.
  for (const std::string_view options : {marked() ? std::string_view() : type->replay, type->check}) {
    if (options.empty()) continue;
    Arguments argv = arguments_of(std::string(options));
    argv.insert(argv.begin(), tool);
    argv.push_back(device);
    const std::string what = tool + " " + std::string(options) + " " + device;
    const auto ended = run(argv, Capture::everything);
    if (!ended && ended.error().code == errc::not_found)
      return Error{errc::failed_precondition, ended.error().text + ", and nothing else finds damage on " + device +
                                                  ": install " + std::string(type->package)};
    if (!ended) return ended.error();
    if (ended->signal != 0) return Error{errc::unavailable, what + ": " + host::describe(*ended)};
    if ((ended->code & kErrorsLeft) != 0) return what + ": " + host::describe(*ended);
    if ((ended->code & ~kCorrected) != 0)
      return Error{errc::failed_precondition, what + " could not check it: " + host::describe(*ended)};
    log_ended(device, *ended);
  }
  return marked() ? std::string("it is marked as having errors") : std::string();
}

result<Inspection> inspect(const std::string& device, const std::string& fstype, bool repair) {
  const auto* type = filesystem_type(fstype);
  const std::string_view command = type == nullptr ? "" : repair ? type->mend : type->inspect;
  if (command.empty())
    return Error{errc::unimplemented, "no tool " + std::string(repair ? "repairs" : "checks") + " this " + fstype +
                                          " without a person's look: " + way_to_repair(fstype)};
  Arguments argv = arguments_of(std::string(command));
  argv.push_back(device);
  const auto ended = run(argv, Capture::everything);
  if (!ended && ended.error().code == errc::not_found) return Error{errc::failed_precondition, ended.error().text};
  if (!ended) return ended.error();
  Inspection found{.command = std::string(command) + " " + device, .report = ended->output};
  if (ended->signal != 0) return Error{errc::unavailable, found.command + ": " + host::describe(*ended)};
  found.clean = (ended->code & ~(repair ? type->mended : 0)) == 0;
  return found;
}

}  // namespace corbd::host::ops
