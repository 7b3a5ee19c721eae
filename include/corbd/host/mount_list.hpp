// The mounts of a node, found by path and by device without a walk over all of them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "corbd/host/values.hpp"

namespace corbd::host {

/// Each look at a volume asks about a few mounts, and a node of thousands of volumes has twice as many mounts.
class MountList {
 public:
  struct Kin {
    std::uint64_t parent = 0;              ///< ID of the parent mount
    std::uint64_t shared = 0, master = 0;  ///< peer groups; 0: none
    bool operator==(const Kin&) const = default;
  };
  struct Row {
    Mount mount;
    Kin kin;
    bool operator==(const Row&) const = default;
  };
  /// By their places in mountinfo.
  using Found = std::map<std::uint64_t, const Mount*>;

  MountList() = default;
  /// Keeps Mount::place as it is.
  explicit MountList(std::vector<Mount> mounts);
  MountList(const MountList& other);
  MountList(MountList&&) = default;
  MountList& operator=(const MountList&) = delete;
  MountList& operator=(MountList&&) = default;

  /// All of them, by their places in mountinfo.
  const std::map<std::uint64_t, Row>& rows() const { return rows_; }
  /// Adds those whose target is the path.
  void add_at(std::string_view path, Found& found) const;
  Found at(std::string_view path) const;
  /// Adds those of filesystems on the device with this number.
  void add_device(std::uint32_t major, std::uint32_t minor, Found& found) const;
  /// Adds binds of the device node, "/nbd0".
  void add_node(std::string_view root, Found& found) const;
  /// Those that are binds of device nodes whose name begins so, "/nbd".
  Found nodes(std::string_view prefix) const;
  /// Whether something is mounted below the folder.
  bool has_below(const std::string& folder) const;

  /// Sets Mount::place of the row and of its children. `at`: one that no row has.
  void put(std::uint64_t at, Row row);
  void remove(std::uint64_t at);

 private:
  using Texts = std::set<std::pair<std::string_view, std::uint64_t>>;
  using Numbers = std::set<std::pair<std::uint64_t, std::uint64_t>>;
  void insert(std::uint64_t at, Row row);
  void find_place(Row& row) const;
  void find_places_below(std::uint64_t id);

  std::map<std::uint64_t, Row> rows_;
  // These refer to texts in rows_, whose nodes stay where they are.
  Texts by_target_, nodes_;
  Numbers by_device_, children_;  ///< by number of the device, by ID of the parent
  std::unordered_map<std::uint64_t, std::uint64_t> by_id_;
};

}  // namespace corbd::host
