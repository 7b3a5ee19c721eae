// The links that an earlier agent handed over, or had when it died, until somebody goes on with them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "corbd/core/wait.hpp"
#include "corbd/nbd/devices.hpp"
#include "inherited_session.hpp"
#include "io_loop.hpp"

namespace corbd::nbd {

/// One for each device. What nobody goes on with within a minute is ended: the kernel would wait for ever for it. If a
/// command is under way on the node then, the end waits for that: it may be a resize that waits for its answers. Memory
/// that none of them speaks of any more goes back to the system. Control thread.
class InheritedLinks {
 public:
  /// Of `config` it takes what was kept, and the memory of that. `loop` ends links.
  InheritedLinks(executor control, Clock& clock, IoLoop& loop, Config& config);
  ~InheritedLinks() { clock_.cancel(forgets_); }
  InheritedLinks(const InheritedLinks&) = delete;
  InheritedLinks& operator=(const InheritedLinks&) = delete;

  void add(std::uint32_t index, InheritedLink link);
  bool has(const std::string& backend) const;

  struct Found {
    Fd socket;
    std::unique_ptr<InheritedSession> inherited;  ///< nothing if its last server owes nothing
  };
  /// The link of that device, for whoever goes on with it. Nothing: there is none that somebody may go on with, and
  /// what there was is being ended.
  std::optional<Found> find(std::uint32_t index, const std::string& backend, const image::BlockImage& image,
                            bool read_only);

  /// Nobody goes on with it: the kernel gets to know, whoever else has the socket.
  void discard(std::uint32_t index);
  void discard(const std::string& backend);
  void discard_all();
  /// Of all that was discarded the kernel has seen the end.
  task<Waited> ended(std::uint32_t index, Until until);

 private:
  struct One {
    InheritedLink link;
    std::shared_ptr<const OldArena> arena;  ///< that its ledger speaks of. It goes with the last link that has it.
  };
  using Links = std::map<std::uint32_t, One>;
  void add_kept(std::uint32_t index, One one);
  void forget_later();
  /// Nobody goes on with it, and the log says why.
  void refuse(Links::iterator place, const Error& why);
  Links::iterator discard(Links::iterator place);
  void end(std::uint32_t index, InheritedLink link);
  result<std::unique_ptr<InheritedSession>> read_inherited(std::uint32_t index, One& one,
                                                           const image::BlockImage& image, bool read_only) const;

  const executor control_;
  Clock& clock_;
  IoLoop& loop_;
  device::FdStore* const fd_store_;
  const std::uint32_t max_request_;
  const std::string lock_;  ///< of the node's commands
  Links links_;
  std::multimap<std::uint32_t, std::shared_ptr<Event>> ends_;  ///< of discarded links, by device
  Clock::TimerId forgets_ = 0;
};

}  // namespace corbd::nbd
