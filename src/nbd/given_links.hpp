// The links that an earlier agent gave away, or had when it died, until somebody goes on with them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "corbd/core/wait.hpp"
#include "corbd/nbd/devices.hpp"
#include "keeping.hpp"

namespace corbd::nbd {

/// One for each device. What nobody goes on with within a minute is shut: the kernel would wait for ever for it.
/// Control thread.
class GivenLinks {
 public:
  /// Of `config` it takes what was kept, and the memory of that.
  GivenLinks(Clock& clock, Config& config);
  ~GivenLinks() { clock_.cancel(forgets_); }
  GivenLinks(const GivenLinks&) = delete;
  GivenLinks& operator=(const GivenLinks&) = delete;

  void add(std::uint32_t index, GivenLink link);

  struct Found {
    Fd socket;
    std::unique_ptr<Left> left;  ///< nothing if its last server owes nothing
  };
  /// The link of that device, for whoever goes on with it. Nothing: there is none that somebody may go on with, and
  /// what there was is shut.
  std::optional<Found> find(std::uint32_t index, const std::string& backend, const image::Image& image, bool read_only);

  /// Nobody goes on with it: the kernel gets to know, whoever else has the socket.
  void discard(std::uint32_t index);
  void discard(const std::string& backend);

 private:
  using Given = std::map<std::uint32_t, GivenLink>;
  void forget_later();
  Given::iterator forget(Given::iterator place);
  Given::iterator discard(Given::iterator place);
  void end(const GivenLink& link);
  template <class Which>
  void discard_all(Which which);
  void remember_memory(std::uint64_t token, Fd file);
  std::unique_ptr<Left> read_left(std::uint32_t index, const GivenLink& given, const image::Image& image,
                                  bool read_only);

  Clock& clock_;
  device::Keep* const keep_;
  const std::uint32_t max_request_;
  Given given_;
  std::vector<std::shared_ptr<const OldArena>> memory_;  ///< as long as links are given
  Clock::TimerId forgets_ = 0;
};

}  // namespace corbd::nbd
