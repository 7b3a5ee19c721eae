// The one function that decides. Staging, unstaging, healing and recovery after a crash in the middle of any of them
// are the same plan with another wish. Every step is idempotent and ends in an observable fact.
//
// I1 a step that uses a device needs a live link, otherwise Wait. I2 an absent fact is unknown: Look first. I4
// KernelConnect only while no device carries our identifier; two that do are a conflict. I7 total: Done is a fixed
// point, and from any reachable state without faults Done or Fail comes within 40 steps (property test).
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "corbd/plan/observation.hpp"
#include "corbd/plan/record.hpp"
#include "corbd/plan/wish.hpp"

namespace corbd::plan {

enum class Fact {
  resolved,
  header,
  ownership,
  image_size,
  probe,
  has_data,
  format_marker,
  filesystem,
  unused,
  stash,
  served_by_other,
  encryption,
  luks,
  keys,
  attachment
};

struct Step {
  enum class Kind {
    look,
    write_record,
    fence,
    open_image,
    lock,
    start_session,
    kernel_connect,
    kernel_reconfigure,
    kernel_resize,
    tune,
    mark,
    mkfs,
    fsck,
    mount,
    grow,
    unmark,
    bind,
    unbind,
    umount,
    disconnect,
    stop_session,
    close_image,
    drop_record,
    open_tombstone,
    dismiss,
    inherit,
    write_stash,
    drop_stash,
    note,
    trim,
    map_krbd,
    unmap_krbd,
    luks_format,
    luks_note,
    luks_open,
    luks_resize,
    luks_close,
    add_key,
    new_key,
    remove_key
  } kind;
  Fact fact = Fact::resolved;                   ///< look
  std::optional<Record> record = std::nullopt;  ///< write_record
  /// bind, unbind, umount, mount: where; grow, trim, look at the filesystem: a mount of it; inherit: the client's
  /// address; write_stash, drop_stash: the staging path
  std::string path = {};
  int key_slot = 0;                           ///< remove_key
  bool sync = true;                           ///< umount, unbind: what the filesystem owes its device is written first
  bool may_fail = false;                      ///< write_record: a disk that keeps refusing it is no hindrance
  std::optional<Stash> stash = std::nullopt;  ///< write_stash
  std::optional<Note> note_text = std::nullopt;  ///< note
};
std::string_view name(Step::Kind kind);

struct Done {};
struct Wait {
  std::string why;
};
struct Fail {
  Error error;
  /// What was opened only to look is closed: a watch of ours would keep the node out that may have the image.
  bool leaves = false;
};
using Decision = std::variant<Step, Done, Wait, Fail>;

/// What the operator decided for the whole agent.
struct Policy {
  std::chrono::seconds tombstone_after{60};  ///< how long a lost volume waits before its device answers EIO
  std::string driver;
  std::string node;      ///< as the orchestrator names it
  bool fencing = false;  ///< the image's metadata tells the address of this node's client
};

Decision decide(const std::string& volume_id, const std::optional<Record>& record, const Wish& wish,
                const Observation& seen, const Policy& policy);

/// The mount of a staging path: <path>/<volume id>.
std::string staging_target(const std::string& volume_id, const std::string& staging_path);

}  // namespace corbd::plan
