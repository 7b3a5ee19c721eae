// A world that is small enough to be searched whole: one image, two nodes with an agent each, and two other clients.
//
// Each state is a plain value without padding, so that two equal states have equal bytes. What is only compared has a
// small number instead of its real value (versions, UIDs, timestamps, written values): normal.cpp renumbers them.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace corbd::search {

using Number = std::uint8_t;  ///< only equality and order count; 0: none
using Flag = std::uint8_t;
using Set = std::uint16_t;  ///< of clients: bit n is client n

inline constexpr int kNodes = 2;
inline constexpr int kSlots = 4;  ///< clients of a node that may still matter at one time

/// A client of the cluster: the first are those of the nodes, kSlots each.
using Ref = std::uint8_t;
inline constexpr Ref kNobody = 0;
inline constexpr Ref kTool = 1 + kNodes * kSlots;  ///< maintains the image: takes its lock, and writes no data
inline constexpr Ref kRescue = kTool + 1;          ///< a host outside of the orchestrator: writes
inline constexpr int kRefs = kRescue + 1;

constexpr Ref first_of(int node) { return static_cast<Ref>(1 + node * kSlots); }
constexpr Ref client_of(int node, int slot) { return static_cast<Ref>(first_of(node) + slot); }
/// Returns -1 for a client of no node.
constexpr int node_of(Ref client) { return client == kNobody || client >= kTool ? -1 : (client - 1) / kSlots; }
constexpr Set bit(Ref client) { return static_cast<Set>(1u << client); }
constexpr Set clients_of(int node) { return static_cast<Set>(((1u << kSlots) - 1) << first_of(node)); }

struct Client {
  enum State : std::uint8_t {
    none,
    live,
    dead,   ///< its node has to fence it
    fenced  ///< or has ended cleanly
  };
  std::uint8_t state = none;
  enum Entry : std::uint8_t {
    no_entry,
    for_an_hour,  ///< by librbd, as it breaks a lock
    for_good      ///< by an agent: seven days
  };
  std::uint8_t blocked = no_entry;  ///< in the blocklist
  Flag watches = 0;
  Number writes = 0;     ///< a write under way that no OSD has carried out yet
  Flag asks = 0;         ///< for the lock: a call under way, long after its look at the header
  Flag locked_late = 0;  ///< it got the lock by such a call
};

struct Image {
  Ref owner = kNobody;
  Flag kept = 0;               ///< the lock was left to the next agent of the owner's node
  Ref lock_watcher = kNobody;  ///< keeps the kept lock alive
  Number version = 1;          ///< of the header
  Number break_from = 0;       ///< the header's break time is the one made from that version
  Number modified = 1;         ///< its modify timestamp
  Number value = 0;            ///< of the only block: the write that was stored last
  Number acked = 0;            ///< the newest write whose application was told that it is stored
};

struct Attachment {
  std::uint8_t node = 1;  ///< 0: nowhere. Node n is n + 1
  Number uid = 1;
};

/// plan::Record, as far as it changes here.
struct Record {
  Flag there = 0;
  Flag failed = 0;
  Flag device = 0;           ///< names its device
  Flag exclusive = 0;        ///< the image had the feature when the device was named
  std::uint8_t staging = 0;  ///< 0: none, 1: begun, 2: complete
  Number uid = 0;            ///< of the attachment
  Number signed_as = 0;
  Number break_before = 0, break_after = 0;
  Ref lock_call = kNobody;
  Number modified = 0;
};

/// ceph-csi's file beside the staging.
struct Stash {
  Flag there = 0;
  Flag device = 0;
  Number uid = 0;
};

struct Device {
  enum Link : std::uint8_t {
    dead,
    present,  ///< the serving agent's
    old,      ///< the predecessor's, which hands over
    waits     ///< given, or kept by a keeper: nobody has continued it yet
  };
  Flag there = 0;
  std::uint8_t link = dead;
  Flag tuned = 0;
  Flag mounted = 0;
  Flag stale = 0;      ///< another client has written since it was mounted: its page cache is old
  Number pending = 0;  ///< a write of the application without an answer
};

/// What an agent keeps in memory of the volume.
struct Process {
  enum Op : std::uint8_t {
    idle,
    stage,
    unstage,
    heal,
    attach,
    leave  ///< closes the image after an operation ended
  };
  enum Phase : std::uint8_t {
    deciding,
    taking,     ///< within Lock: a dead lock is broken
    hanging,    ///< within Lock: the call for the lock has no answer yet
    breaking,   ///< within Evict: the clients are blocked
    kept_lock,  ///< of a predecessor: the lock is left to the next agent
    gave_link
  };
  enum Link : std::uint8_t { no_link, serving, held, closed };
  enum Opened : std::uint8_t { shut, open, tombstone };
  enum Took : std::uint8_t { in_time, unknown };

  Flag alive = 0;
  std::uint8_t op = idle;
  std::uint8_t phase = deciding;
  Number op_uid = 0;  ///< attach
  // The server.
  std::uint8_t image = shut;
  Ref client = kNobody;  ///< of the image, or of the next one
  Flag closing = 0;
  Flag lost = 0;   ///< its client was cut off
  Flag right = 0;  ///< has the lock
  std::uint8_t took = in_time;
  Number modified = 0;  ///< when its lock was taken
  Number seen = 0;      ///< the header's version that the proof was read with
  std::uint8_t link = no_link;
  Flag connected = 0;
  // The history.
  Flag was_lost = 0;  ///< the last outcome was `lost`
  Flag access_lost = 0;
  Set lockers = 0, late_lockers = 0;
  // Facts of this operation.
  Flag fenced = 0;
  Flag header = 0;
  Number header_version = 0, header_break_from = 0;
  Flag owned = 0;           ///< the ownership is known
  std::uint8_t lock = 0;    ///< image::Ownership::Lock
  Flag lock_call_late = 0;  ///< the lock was asked for by an agent that died, more than 5 s ago
  Ref owner = kNobody;
  Number version = 0, stamp = 0;
  std::uint8_t attachment = 0;  ///< plan::Attachment::State + 1; 0: not asked
  Number uid = 0;
  Flag holders = 0;
  Flag unused = 0;
  Set watchers = 0, blocked = 0, tainted = 0, evicted = 0;
};

struct Node {
  Flag cut = 0;      ///< from the cluster
  Flag tainted = 0;  ///< out-of-service
  Record record;
  Stash stash;
  Device device;
  Process agent;
  Process predecessor;  ///< while it hands over
};

struct World {
  Image image;
  Attachment attachment;
  std::array<Client, kRefs> clients;
  std::uint8_t disturbances = 0;  ///< that may still happen
  std::uint8_t writes = 0;        ///< that applications may still make
  std::array<Node, kNodes> nodes;
  bool operator==(const World& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }
};
static_assert(std::has_unique_object_representations_v<World>);
static_assert(std::is_trivially_copyable_v<World>);

}  // namespace corbd::search
