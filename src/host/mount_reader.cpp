#include "mount_reader.hpp"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "corbd/core/file.hpp"
#include "mount_calls.hpp"

namespace corbd::host {
namespace {

bool is_same(const MountList::Row& known, MountList::Row now) {
  now.mount.place = known.mount.place;
  return known == now;
}

}  // namespace

result<MountTable> MountReader::read() {
  if (!file_) file_ = Fd(::open(kMountinfo, O_RDONLY | O_CLOEXEC));
  // The poll comes before the look, so a change in between shows at the next poll.
  pollfd changed{file_.get(), POLLPRI, 0};
  const bool same = file_ && ::poll(&changed, 1, 0) == 0;
  const auto age = std::chrono::steady_clock::now() - looked_at_all_at_;
  const bool whole = !known_ || age >= (same && !owes_look_ ? lasts_ : keeps_);
  if (same && !whole) return MountTable(known_);
  if (auto updated = update(same, whole); !updated) {
    known_.reset();
    return updated.error();
  }
  return MountTable(known_);
}

result<> MountReader::update(bool same, bool whole) {
  if (by_calls_) {
    const auto updated = update_by_calls(same, whole);
    if (updated) return updated;
    // A security module asks for more before these calls than before a read of mountinfo.
    if (updated.error().code == errc::unimplemented) by_calls_ = false;
    known_.reset();
  }
  return update_by_text(whole || !known_);
}

/// Makes a copy if somebody holds the table, who keeps it as it is.
MountList& MountReader::own_list() {
  if (!known_)
    known_ = std::make_shared<MountList>();
  else if (known_.use_count() > 1)
    known_ = std::make_shared<MountList>(*known_);
  return *known_;
}

result<> MountReader::update_by_calls(bool same, bool whole) {
  if (!known_) ids_.clear();
  auto listed = list_mounts();
  if (!listed) return listed.error();
  std::vector<std::uint64_t> gone, looked_at;
  std::ranges::set_difference(ids_, *listed, std::back_inserter(gone));
  std::ranges::set_difference(*listed, ids_, std::back_inserter(looked_at));
  // Otherwise what changed is a mount that stays.
  const bool explained = same || !gone.empty() || !looked_at.empty();
  if (whole || !explained) {
    looked_at = *listed;
    looked_at_all_at_ = std::chrono::steady_clock::now();
  }
  owes_look_ = !whole && explained;
  Change change{std::move(gone), {}, known_ != nullptr};
  if (auto looked = look_at(looked_at, *listed, change); !looked) return looked.error();
  if (!change.has_source) return Error{errc::unimplemented, "the kernel does not tell the source of a mount"};
  ids_ = std::move(*listed);
  if (change.gone.empty() && change.put.empty() && known_) return {};
  MountList& list = own_list();
  for (const std::uint64_t id : change.gone) list.remove(id);
  for (auto& [id, row] : change.put) list.put(id, std::move(row));
  return {};
}

/// Adds what differs from the known table. Takes those that are gone meanwhile off the list.
result<> MountReader::look_at(const std::vector<std::uint64_t>& ids, std::vector<std::uint64_t>& listed,
                              Change& change) {
  for (const std::uint64_t id : ids) {
    auto described = describe_mount(id);
    if (!described) return described.error();
    ++described_;
    const bool was_known = known_ && known_->rows().contains(id);
    if (!*described) {
      if (was_known) change.gone.push_back(id);
      std::erase(listed, id);
      continue;
    }
    change.has_source = change.has_source || (*described)->has_source;
    if (was_known && is_same(known_->rows().at(id), (*described)->row)) continue;
    if (was_known) change.gone.push_back(id);
    change.put.emplace_back(id, std::move((*described)->row));
  }
  return {};
}

result<> MountReader::update_by_text(bool whole) {
  constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();
  const auto text = read_file(kMountinfo, no_limit);
  if (!text) return Error{errc::unavailable, text.error().text};
  MountLines before;
  if (!whole) before = {std::move(own_list()), std::move(lines_)};
  if (whole) {
    looked_at_all_at_ = std::chrono::steady_clock::now();
    owes_look_ = false;
  }
  known_.reset();
  auto parsed = parse_mounts(*text, kMountinfo, std::move(before));
  if (!parsed) return parsed.error();
  known_ = std::make_shared<MountList>(std::move(parsed->list));
  lines_ = std::move(parsed->lines);
  return {};
}

}  // namespace corbd::host
