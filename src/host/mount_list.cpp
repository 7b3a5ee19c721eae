#include "corbd/host/mount_list.hpp"

#include <utility>

namespace corbd::host {
namespace {

constexpr std::string_view kDeviceNodes = "devtmpfs";

std::uint64_t device_number(std::uint32_t major, std::uint32_t minor) {
  constexpr unsigned bits = 32;
  return (std::uint64_t{major} << bits) | minor;
}

/// Joins "/a/b" and "c" to "/a/b/c".
std::string below(const std::string& folder, const std::string& name) {
  return (folder == "/" ? "" : folder) + "/" + name;
}

/// Adds the rows whose text or number is the key.
template <class Set, class Key>
void add(const Set& set, const Key& key, const std::map<std::uint64_t, MountList::Row>& rows, MountList::Found& found) {
  for (auto place = set.lower_bound({key, 0}); place != set.end() && place->first == key; ++place)
    found.emplace(place->second, &rows.at(place->second).mount);
}

}  // namespace

MountList::MountList(std::vector<Mount> mounts) {
  std::uint64_t at = 0;
  for (auto& mount : mounts) insert(at++, {std::move(mount), {}});
}

MountList::MountList(const MountList& other) {
  for (const auto& [at, row] : other.rows_) insert(at, row);
}

void MountList::add_at(std::string_view path, Found& found) const { add(by_target_, path, rows_, found); }

MountList::Found MountList::at(std::string_view path) const {
  Found found;
  add_at(path, found);
  return found;
}

void MountList::add_device(std::uint32_t major, std::uint32_t minor, Found& found) const {
  add(by_device_, device_number(major, minor), rows_, found);
}

void MountList::add_node(std::string_view root, Found& found) const { add(nodes_, root, rows_, found); }

MountList::Found MountList::nodes(std::string_view prefix) const {
  Found found;
  for (auto place = nodes_.lower_bound({prefix, 0}); place != nodes_.end() && place->first.starts_with(prefix); ++place)
    found.emplace(place->second, &rows_.at(place->second).mount);
  return found;
}

bool MountList::has_below(const std::string& folder) const {
  const std::string prefix = folder + "/";
  const auto place = by_target_.lower_bound({prefix, 0});
  return place != by_target_.end() && place->first.starts_with(prefix);
}

void MountList::put(std::uint64_t at, Row row) {
  const std::uint64_t id = row.mount.id;
  find_place(row);
  insert(at, std::move(row));
  find_places_below(id);
}

void MountList::remove(std::uint64_t at) {
  const auto place = rows_.find(at);
  if (place == rows_.end()) return;
  const auto& [mount, kin] = place->second;
  const std::uint64_t id = mount.id;
  by_target_.erase({mount.target, at});
  if (mount.fstype == kDeviceNodes) nodes_.erase({mount.root, at});
  by_device_.erase({device_number(mount.dev_major, mount.dev_minor), at});
  children_.erase({kin.parent, at});
  const auto known = by_id_.find(id);
  const bool was_known = known != by_id_.end() && known->second == at;
  if (was_known) by_id_.erase(known);
  rows_.erase(place);
  if (was_known) find_places_below(id);
}

void MountList::insert(std::uint64_t at, Row row) {
  const auto& [mount, kin] = rows_.insert_or_assign(at, std::move(row)).first->second;
  by_target_.emplace(mount.target, at);
  if (mount.fstype == kDeviceNodes) nodes_.emplace(mount.root, at);
  by_device_.emplace(device_number(mount.dev_major, mount.dev_minor), at);
  children_.emplace(kin.parent, at);
  by_id_[mount.id] = at;
}

void MountList::find_place(Row& row) const {
  row.mount.place = {};
  const auto known = by_id_.find(row.kin.parent);
  if (known == by_id_.end()) return;
  const Mount& parent = rows_.at(known->second).mount;
  const std::string around = parent.target == "/" ? "/" : parent.target + "/";
  const std::string& target = row.mount.target;
  if (!target.starts_with(around) || target.size() == around.size()) return;
  row.mount.place = {parent.dev_major, parent.dev_minor, below(parent.root, target.substr(around.size())), 0, 0};
  const Kin& of_parent = rows_.at(known->second).kin;
  row.mount.place.shared = of_parent.shared;
  row.mount.place.master = of_parent.master;
}

void MountList::find_places_below(std::uint64_t id) {
  for (auto child = children_.lower_bound({id, 0}); child != children_.end() && child->first == id; ++child)
    find_place(rows_.at(child->second));
}

}  // namespace corbd::host
