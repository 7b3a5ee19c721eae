#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "corbd/core/fd.hpp"
#include "corbd/host/host.hpp"
#include "mountinfo.hpp"

namespace corbd::host {

/// Keeps the table of this process's mounts. It looks at the table again when the kernel says that it changed (poll(2)
/// on mountinfo, proc(5)), or when it is old: the kernel does not report that a filesystem turned read-only after an
/// error.
///
/// Since Linux 6.14 a change costs a list of all IDs, and a look at each mount that is new. No mount and no unmount is
/// missed. A mount that was moved or remounted shows at once if nothing else changed, and otherwise within a second.
/// What the kernel does not report (a folder above a mount that was renamed, a change of propagation, a filesystem that
/// turned read-only) shows within ten seconds. Older kernels write the whole table each time.
class MountReader {
 public:
  enum class Way { newest, text };
  /// `keeps`: time for which a mount that stays is not looked at again. The kernel does not say that an ext4 counted an
  /// error.
  explicit MountReader(std::chrono::seconds lasts = std::chrono::seconds(10), Way way = Way::newest,
                       std::chrono::seconds keeps = std::chrono::seconds(1))
      : lasts_(lasts), keeps_(keeps), by_calls_(way == Way::newest) {}
  result<MountTable> read();
  /// How many mounts were described by the kernel so far, for tests.
  std::uint64_t described() const { return described_; }

 private:
  result<> update(bool same, bool whole);
  struct Change {
    std::vector<std::uint64_t> gone;
    std::vector<std::pair<std::uint64_t, MountList::Row>> put;
    bool has_source = false;  ///< whether the kernel names the source of any mount
  };
  result<> update_by_calls(bool same, bool whole);
  result<> look_at(const std::vector<std::uint64_t>& ids, std::vector<std::uint64_t>& listed, Change& change);
  result<> update_by_text(bool whole);
  MountList& own_list();

  const std::chrono::seconds lasts_, keeps_;
  bool by_calls_;
  std::chrono::steady_clock::time_point looked_at_all_at_;
  Fd file_;
  std::shared_ptr<MountList> known_;  ///< null: not read, or not readable
  bool owes_look_ = false;            ///< something else may have changed beside mounts and unmounts
  std::vector<std::uint64_t> ids_;    ///< sorted
  std::vector<MountLines::Line> lines_;
  std::uint64_t described_ = 0;
};

}  // namespace corbd::host
