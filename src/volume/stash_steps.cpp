#include "stash_steps.hpp"

#include "corbd/core/log.hpp"

namespace corbd::volume {
namespace {

/// ceph-csi defines these keys. The dot keeps rbd-mirror from copying them.
std::string note_key(const char* what, const Volume& volume, const Config& config) {
  return std::string(".rbd.csi.ceph.com/") + what + "/" + volume.id + "/" + config.policy.node;
}

}  // namespace

task<result<>> StashSteps::look(Volume& volume, const Wish& wish) {
  const auto* staged = std::get_if<Staged>(&wish);
  const auto* unstaged = std::get_if<Unstaged>(&wish);
  std::vector<std::string> paths;
  if (staged != nullptr)
    paths = {staged->path};
  else if (unstaged != nullptr)
    paths = {unstaged->path};
  else if (std::holds_alternative<Attached>(wish) && volume.record && !volume.record->stagings.empty())
    paths = {volume.record->stagings.front().path};
  else if (volume.record)
    for (const auto& staging : volume.record->stagings) paths.push_back(staging.path);
  result<std::optional<Stash>> found = std::optional<Stash>();
  for (const auto& path : paths) {
    found = co_await ports_.files.read_stash(path);
    if (!found || *found) break;
  }
  if (!found && found.error().code == errc::state_corrupt && volume.record) {
    // The record is right: the planner rewrites the stash or drops it.
    log::warning("stash.corrupt", {{"volume", volume.id}, {"error", found.error().text}});
    volume.facts.stash = Stash();
    co_return result<>();
  }
  if (!found) co_return found.error();
  volume.facts.stash = std::move(*found);
  co_return result<>();
}

task<result<>> StashSteps::write(Volume& volume, const step::WriteStash& step) {
  auto written = co_await ports_.files.write_stash(step.path, step.stash);
  if (!written) volume.facts.stash.reset();
  if (written) volume.facts.stash = step.stash;
  co_return written;
}

task<result<>> StashSteps::drop(Volume& volume, std::string staging_path) {
  const auto& known = volume.facts.stash;
  std::string log = known && *known ? cephcsi::log_to_remove(**known, volume.id) : "";
  auto dropped = co_await ports_.files.drop_stash(std::move(staging_path), std::move(log));
  volume.facts.stash.reset();
  if (dropped) volume.facts.stash.emplace();
  co_return dropped;
}

task<result<>> StashSteps::note(Volume& volume, const Note& wanted, const Wish& wish) {
  auto written = co_await write_note(volume, wanted);
  if (written) {
    volume.facts.noted = wanted;
    co_return result<>();
  }
  Error error = with_context("writing the note for ceph-csi's controller into the image's metadata", written.error());
  if (std::holds_alternative<Staged>(wish)) {
    // Nothing is connected yet, so kubelet may try again.
    if (final_for_caller(error.code)) error.code = errc::unavailable;
    co_return error;
  }
  log::warning(
      "volume.not_noted",
      {{"volume", volume.id}, {"error", error.text}, {"effect", "the next healing of the volume tries again"}});
  volume.facts.note_refused = true;
  co_return result<>();
}

task<result<>> StashSteps::write_note(Volume& volume, const Note& wanted) {
  const Note known = volume.record->note.value_or(Note());
  if (wanted.user != known.user) {
    auto set =
        co_await volume.server.image()->set_metadata(note_key("userid", volume, config_), wanted.user, deadline());
    if (!set) co_return set;
  }
  if (wanted.address.empty() || wanted.address == known.address) co_return result<>();
  co_return co_await volume.server.image()->set_metadata(note_key("clientaddress", volume, config_), wanted.address,
                                                         deadline());
}

}  // namespace corbd::volume
