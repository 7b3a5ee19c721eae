// The states of a volume's freeze for a snapshot, as a pure function. librbd asks before a snapshot, and says when it
// is made. Each request gets one answer, and what was frozen is thawed, whatever happens between.
#pragma once

#include <optional>
#include <string_view>

namespace corbd::volume {

class Freezing {
 public:
  enum class Phase {
    idle,
    freezing,  ///< the request has no answer yet
    frozen,    ///< it was answered with 0, and the snapshot is being made
    thawing    ///< the filesystem is frozen, or may be
  };
  enum class In {
    asked,    ///< a snapshot is about to be made
    ended,    ///< it is made, or given up
    froze,    ///< the filesystem is frozen
    refused,  ///< it is not, and nothing of the freeze is under way
    unsure,   ///< nobody knows
    limit,    ///< it has been frozen, or being frozen, for as long as it may
    leaves,   ///< the agent hands over, or ends
    returns,  ///< it does not after all
    found,    ///< the record names a freeze that is none of ours: of an earlier agent
    thawed    ///< the filesystem is thawed, by us or by an operation of the volume
  };
  struct Out {
    std::optional<int> answer = {};     ///< answer to the request: 0, or a negative errno
    bool refuse = false;                ///< the request that came just now is refused, and no other answer is due
    bool freeze = false, thaw = false;  ///< begin it
    bool broken = false;                ///< the snapshot may have been made of a filesystem that was thawed again
    bool operator==(const Out&) const = default;
  };
  Out next(In in);
  Phase phase() const { return phase_; }
  bool idle() const { return phase_ == Phase::idle; }

 private:
  Out asked();
  Out thaw(std::optional<int> answer);
  Out thawed();
  Phase phase_ = Phase::idle;
  bool owed_ = false;     ///< an answer
  bool waiting_ = false;  ///< the owed answer is to a request that came during the thaw of the one before
  bool leaving_ = false;
};

std::string_view name(Freezing::Phase phase);

}  // namespace corbd::volume
