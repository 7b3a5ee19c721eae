// The steps that tell ceph-csi of a volume: through the stash, and through the image's metadata.
#include "corbd/core/log.hpp"
#include "steps.hpp"

namespace corbd::volume {
namespace {

/// ceph-csi defines these keys. The dot keeps rbd-mirror from copying them.
std::string note_key(const char* what, const Volume& live, const Config& config) {
  return std::string(".rbd.csi.ceph.com/") + what + "/" + live.id + "/" + config.policy.node;
}

}  // namespace

task<result<>> Steps::look_at_stash(Volume& live, const Wish& wish) {
  const auto* staged = std::get_if<Staged>(&wish);
  const auto* unstaged = std::get_if<Unstaged>(&wish);
  std::vector<std::string> paths;
  if (staged != nullptr)
    paths = {staged->path};
  else if (unstaged != nullptr)
    paths = {unstaged->path};
  else if (std::holds_alternative<Attached>(wish) && live.record && !live.record->stagings.empty())
    paths = {live.record->stagings.front().path};
  else if (live.record)
    for (const auto& staging : live.record->stagings) paths.push_back(staging.path);
  result<std::optional<Stash>> found = std::optional<Stash>();
  for (const auto& path : paths) {
    found = co_await ports_.files.read_stash(path);
    if (!found || *found) break;
  }
  if (!found && found.error().code == errc::state_corrupt && live.record) {
    // The record knows better: the planner rewrites the stash or drops it.
    log::warning("stash.corrupt", {{"volume", live.id}, {"error", found.error().text}});
    live.facts.stash = Stash();
    co_return result<>();
  }
  if (!found) co_return found.error();
  live.facts.stash = std::move(*found);
  co_return result<>();
}

task<result<>> Steps::write_stash(Volume& live, const step::WriteStash& step) {
  auto written = co_await ports_.files.write_stash(step.path, step.stash);
  if (!written) live.facts.stash.reset();
  if (written) live.facts.stash = step.stash;
  co_return written;
}

task<result<>> Steps::drop_stash(Volume& live, std::string staging_path) {
  const auto& known = live.facts.stash;
  std::string log = known && *known ? cephcsi::log_to_remove(**known, live.id) : "";
  auto dropped = co_await ports_.files.drop_stash(std::move(staging_path), std::move(log));
  live.facts.stash.reset();
  if (dropped) live.facts.stash.emplace();
  co_return dropped;
}

task<result<>> Steps::note(Volume& live, const Note& wanted, const Wish& wish) {
  auto written = co_await write_note(live, wanted);
  if (written) {
    live.facts.noted = wanted;
    co_return result<>();
  }
  Error error = with_context("writing the note for ceph-csi's controller into the image's metadata", written.error());
  if (std::holds_alternative<Staged>(wish)) {
    // Nothing is connected yet, so kubelet shall try again.
    if (final_for_caller(error.code)) error.code = errc::unavailable;
    co_return error;
  }
  log::warning("volume.not_noted",
               {{"volume", live.id}, {"error", error.text}, {"effect", "the next healing of the volume tries again"}});
  live.facts.note_refused = true;
  co_return result<>();
}

task<result<>> Steps::write_note(Volume& live, const Note& wanted) {
  const Note known = live.record->note.value_or(Note());
  if (wanted.user != known.user) {
    auto set = co_await live.image->set_metadata(note_key("userid", live, config_), wanted.user, soon());
    if (!set) co_return set;
  }
  if (wanted.address.empty() || wanted.address == known.address) co_return result<>();
  co_return co_await live.image->set_metadata(note_key("clientaddress", live, config_), wanted.address, soon());
}

}  // namespace corbd::volume
