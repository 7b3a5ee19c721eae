// Evidence that another client has an image, or had it since this node served it, and its weight: one table for every
// ground to serve (docs/proof-of-ownership.md#evidence).
#pragma once

#include <array>
#include <string_view>

#include "situation.hpp"

namespace corbd::plan {

/// Evidence of another client.
enum class Trace {
  dirty_cache,  ///< writes that lie in another client's persistent cache
  watch,        ///< it has the image open
  lock,         ///< it has the exclusive lock, or left it
  mark,         ///< another node's client marked the image as its own to write
  stamp         ///< the modify timestamp differs from that while this node served
};
inline constexpr std::array kTraces{Trace::dirty_cache, Trace::watch, Trace::lock, Trace::mark, Trace::stamp};

/// The ground on which a volume is served.
enum class Ground {
  reader,          ///< nothing is written
  shared,          ///< many nodes write
  held,            ///< this process has held the lock since it was proven
  fresh,           ///< a device that does not exist yet
  own_lock,        ///< the lock is our client's, or was until we broke it
  handed_over,     ///< the mark is the predecessor's, whose link waits
  dismissed,       ///< rbd-nbd had the image until it was asked to end
  attached,        ///< the volume stayed attached here
  attached_other,  ///< the same, and rbd-nbd served it until it died
  left_lock,       ///< the volume stayed attached here, and a dead client of this node left the lock
  operator_says    ///< an operator says that no other node used the image
};
inline constexpr std::size_t kGrounds = static_cast<std::size_t>(Ground::operator_says) + 1;

/// The meaning of evidence for a ground.
enum class Means {
  refuses,  ///< the volume is not served
  taken,    ///< it is served once that client is proven dead and fenced; otherwise it is in use
  nothing   ///< no objection, for the reason in `why`
};

struct Meaning {
  Means means = Means::refuses;
  std::string_view why = {};
};

Meaning meaning(Ground ground, Trace trace);
/// Whether the evidence is there. Evidence that was not looked up yet counts as there.
bool shows(const Situation& view, Trace trace);
/// Whether no evidence speaks against that ground. Every ground is checked here.
bool is_clear(const Situation& view, Ground ground);

}  // namespace corbd::plan
