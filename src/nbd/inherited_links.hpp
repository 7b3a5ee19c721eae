// Links that an earlier agent handed over, or had when it died, until a session resumes them.
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

/// Holds one link for each device. A link that nobody resumes within a minute is ended: the kernel would wait for ever
/// for it. If a command is under way on the node then, the end waits for that: it may be a resize that waits for the
/// link's answers. Memory that no link refers to any more goes back to the system. Control thread.
class InheritedLinks {
 public:
  /// Takes from `config` the stored links and their memory. `loop` ends links.
  InheritedLinks(executor control, Clock& clock, IoLoop& loop, Config& config);
  ~InheritedLinks() { clock_.cancel(forgets_); }
  InheritedLinks(const InheritedLinks&) = delete;
  InheritedLinks& operator=(const InheritedLinks&) = delete;

  void add(std::uint32_t index, InheritedLink link);
  bool has(const std::string& backend) const;

  struct Found {
    Fd socket;
    std::unique_ptr<InheritedSession> inherited;  ///< nothing if the link's last server owes nothing
  };
  /// Returns the link of that device for a session that resumes it. Nothing: no link may be resumed, and any other is
  /// being ended.
  std::optional<Found> find(std::uint32_t index, const std::string& backend, const image::BlockImage& image,
                            bool read_only);

  /// Ends the link, because nobody resumes it. The kernel sees its end, whoever else has the socket.
  void discard(std::uint32_t index);
  void discard(const std::string& backend);
  void discard_all();
  /// Waits until the kernel has seen the end of all discarded links.
  task<Waited> ended(std::uint32_t index, Until until);

 private:
  struct One {
    InheritedLink link;
    std::shared_ptr<const OldArena> arena;  ///< arena that its ledger refers to; it goes with the last such link
  };
  using Links = std::map<std::uint32_t, One>;
  void add_kept(std::uint32_t index, One one);
  void forget_later();
  /// Ends the link, and logs why nobody resumes it.
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
  const std::string lock_;  ///< lock of the node's commands
  Links links_;
  std::multimap<std::uint32_t, std::shared_ptr<Event>> ends_;  ///< ends of discarded links, by device
  Clock::TimerId forgets_ = 0;
};

}  // namespace corbd::nbd
