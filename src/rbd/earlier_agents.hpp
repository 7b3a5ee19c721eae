// Reads from their files which Ceph clients earlier agents had, and whose blocklist entries end early. Until both are
// known nobody knows whom to fence, so no image is opened.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "corbd/core/blocking_pool.hpp"
#include "corbd/core/gate.hpp"
#include "corbd/rbd/clusters.hpp"
#include "incarnation.hpp"
#include "renewal.hpp"

namespace corbd::rbd {

/// Control thread only.
class EarlierAgents {
 public:
  /// Puts the clients into `incarnations`, and the notes into `renewals`. `gate`: for everything under way.
  /// `config`: `predecessor_running` may change.
  EarlierAgents(executor control, Clock& clock, BlockingPool& files, Gate& gate, const Config& config,
                Incarnations& incarnations, Renewals& renewals);
  /// Reads when the agent starts, on this very thread. Files that cannot be read are tried again.
  void read_at_start();
  /// `again`: files that cannot be read are tried until they can be. The answer is that of the first try.
  task<result<>> read(bool again);
  /// Returns why their clients are unknown. Nothing: they are known.
  const std::optional<Error>& unknown() const { return unknown_; }
  /// Stops the retries, because the agent leaves.
  void stop();

 private:
  struct Files {
    LoadedShortEntries notes;
    result<LoadedIncarnations> incarnations;
  };
  static Files load(const std::string& dir, std::int64_t now, const std::string& boot_id);
  task<result<>> read_once();
  result<> take_in(const Files& read);
  void read_again_because_of(const Error& failed);
  task<> read_again();

  executor control_;
  Clock& clock_;
  BlockingPool& files_;
  Gate& gate_;
  const Config& config_;
  Incarnations& incarnations_;
  Renewals& renewals_;
  std::optional<Error> unknown_;
  bool reads_again_ = false;  ///< read_again() runs
  bool stopped_ = false;
  CancelScope pauses_;
};

}  // namespace corbd::rbd
