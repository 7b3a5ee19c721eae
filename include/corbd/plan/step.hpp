// The planner's next action: one type for each step, so that a step nobody carries out does not compile. Every step is
// idempotent and ends in an observable fact.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "corbd/plan/holder.hpp"
#include "corbd/plan/record.hpp"

namespace corbd::plan {

/// The results of a Look: facts that cost a call (Facts in observation.hpp).
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
  beside,
  encryption,
  luks,
  first_key,
  keys,
  folder,
  attachment,
  holders,
  io_limits,
  stage_secret,
  client_user
};

namespace step {

/// A step's name, as a template argument.
template <std::size_t Size>
struct Text {
  constexpr Text(const char (&from)[Size]) { std::copy_n(from, Size, chars.begin()); }
  constexpr std::string_view view() const { return {chars.data(), Size - 1}; }
  std::array<char, Size> chars{};
};

/// The addressee of a step. A step without a result in time means that its addressee did not answer.
enum class Asks { node, cluster };

struct FactRow {
  Fact fact;
  Asks asks;
  bool needs_image;  ///< it is asked of the open image
};
/// In the order of Fact.
inline constexpr std::array kFacts{
    FactRow{Fact::resolved, Asks::cluster, false},     FactRow{Fact::header, Asks::cluster, false},
    FactRow{Fact::ownership, Asks::cluster, true},     FactRow{Fact::image_size, Asks::cluster, true},
    FactRow{Fact::probe, Asks::node, false},           FactRow{Fact::has_data, Asks::cluster, true},
    FactRow{Fact::format_marker, Asks::cluster, true}, FactRow{Fact::filesystem, Asks::node, false},
    FactRow{Fact::unused, Asks::node, false},          FactRow{Fact::stash, Asks::node, false},
    FactRow{Fact::served_by_other, Asks::node, false}, FactRow{Fact::beside, Asks::cluster, false},
    FactRow{Fact::encryption, Asks::cluster, true},    FactRow{Fact::luks, Asks::node, false},
    FactRow{Fact::first_key, Asks::node, true},        FactRow{Fact::keys, Asks::node, true},
    FactRow{Fact::folder, Asks::node, false},          FactRow{Fact::attachment, Asks::cluster, false},
    FactRow{Fact::holders, Asks::cluster, true},       FactRow{Fact::io_limits, Asks::cluster, true},
    FactRow{Fact::stage_secret, Asks::cluster, false}, FactRow{Fact::client_user, Asks::cluster, true},
};
static_assert(std::ranges::all_of(kFacts, [](const FactRow& row) {
  return &kFacts[static_cast<std::size_t>(row.fact)] == &row;
}));
constexpr const FactRow& row(Fact fact) { return kFacts[static_cast<std::size_t>(fact)]; }

/// A step without arguments.
template <Text Name, Asks Whom>
struct Plain {
  static constexpr std::string_view name = Name.view();
  static constexpr Asks asks = Whom;
  bool operator==(const Plain&) const = default;
};

struct Look {
  static constexpr std::string_view name = "look";
  Fact fact;
  std::string path = {};  ///< for a look at the filesystem or its encrypted folder: a mount of it
  bool operator==(const Look&) const = default;
};

struct WriteRecord {
  static constexpr std::string_view name = "write_record";
  static constexpr Asks asks = Asks::node;
  Record record;
  bool may_fail = false;  ///< a disk that keeps refusing it does not stop the wish
  bool operator==(const WriteRecord&) const = default;
};
using DropRecord = Plain<"drop_record", Asks::node>;

// --- The image ----------------------------------------------------------------------------------

using Fence = Plain<"fence", Asks::cluster>;
/// Asks the cluster about the credential that this operation brought, on a connection of its own. The one that serves
/// the volume stays, and an answer is no failure.
using TryCredential = Plain<"try_credential", Asks::cluster>;
/// Gives up the client of the volume's image, because the cluster refuses its user now, or answers only other clients
/// of that user. While it serves, the volume's present user must be able to serve in its place. If the cluster does
/// not say so, the client stays, and the step succeeds.
using GiveUpClient = Plain<"give_up_client", Asks::cluster>;
/// Makes another program's client a dead one of ours.
struct Inherit {
  static constexpr std::string_view name = "inherit";
  static constexpr Asks asks = Asks::cluster;
  std::string address;  ///< address of that client
  bool operator==(const Inherit&) const = default;
};
/// Blocklists foreign clients that have the image, each by its very address, and breaks the lock of one of them.
struct Evict {
  static constexpr std::string_view name = "evict";
  static constexpr Asks asks = Asks::cluster;
  std::vector<Holder> holders;
  bool operator==(const Evict&) const = default;
};
using OpenImage = Plain<"open_image", Asks::cluster>;
/// Opens it once more beside the image that serves, with this operation's user and key, and without the lock. A refusal
/// is an answer, and no failure.
using OpenNext = Plain<"open_next", Asks::cluster>;
using OpenTombstone = Plain<"open_tombstone", Asks::node>;
using Lock = Plain<"lock", Asks::cluster>;
using CloseImage = Plain<"close_image", Asks::cluster>;
using SetFormatMarker = Plain<"mark", Asks::cluster>;
using RemoveFormatMarker = Plain<"unmark", Asks::cluster>;
struct WriteNote {
  static constexpr std::string_view name = "note";
  static constexpr Asks asks = Asks::cluster;
  Note note;
  bool operator==(const WriteNote&) const = default;
};

// --- The device ---------------------------------------------------------------------------------

using StartSession = Plain<"start_session", Asks::node>;
using StopSession = Plain<"stop_session", Asks::cluster>;
/// Ends the service by the image's client, whose user or key is not the volume's any more, without notice to the
/// kernel. The next steps take the image that OpenNext opened, and resume the link. If a request waits for the cluster,
/// the volume stays served as it is, and the step succeeds.
using ChangeClient = Plain<"change_client", Asks::cluster>;
using KernelConnect = Plain<"kernel_connect", Asks::node>;
using KernelReconfigure = Plain<"kernel_reconfigure", Asks::node>;
using KernelResize = Plain<"kernel_resize", Asks::node>;
using Disconnect = Plain<"disconnect", Asks::node>;
using Tune = Plain<"tune", Asks::node>;
/// Makes the link answer flushes without the error of a lost cache again.
using AcceptLoss = Plain<"accept_loss", Asks::node>;
/// Asks rbd-nbd to end.
using Dismiss = Plain<"dismiss", Asks::node>;
using MapKrbd = Plain<"map_krbd", Asks::cluster>;
using UnmapKrbd = Plain<"unmap_krbd", Asks::node>;

// --- The key of an encrypted volume ----------------------------------------------------------------

/// Gives its KMS a first key.
using MakeKey = Plain<"make_key", Asks::node>;
/// Sends the key that the KMS has once more. Afterwards no earlier write changes anything.
using ConfirmKey = Plain<"confirm_key", Asks::node>;

// --- LUKS ---------------------------------------------------------------------------------------

using LuksFormat = Plain<"luks_format", Asks::node>;
using LuksNote = Plain<"luks_note", Asks::cluster>;
using LuksOpen = Plain<"luks_open", Asks::node>;
using LuksResize = Plain<"luks_resize", Asks::node>;
using LuksClose = Plain<"luks_close", Asks::node>;
using AddKey = Plain<"add_key", Asks::node>;
using NewKey = Plain<"new_key", Asks::node>;
struct RemoveKey {
  static constexpr std::string_view name = "remove_key";
  static constexpr Asks asks = Asks::node;
  int slot;
  bool operator==(const RemoveKey&) const = default;
};

// --- The filesystem and its mounts --------------------------------------------------------------

using Mkfs = Plain<"mkfs", Asks::node>;
using Fsck = Plain<"fsck", Asks::node>;

/// A step at a mount, or at a future one.
template <Text Name>
struct At {
  static constexpr std::string_view name = Name.view();
  static constexpr Asks asks = Asks::node;
  std::string path;
  bool operator==(const At&) const = default;
};
using Mount = At<"mount">;
using Bind = At<"bind">;
using Grow = At<"grow">;
using Freeze = At<"freeze">;
using Thaw = At<"thaw">;

struct Trim {
  static constexpr std::string_view name = "trim";
  static constexpr Asks asks = Asks::node;
  std::string path;
  std::optional<std::uint64_t> from = {};  ///< Trimmed::from
  bool operator==(const Trim&) const = default;
};

/// Makes the encrypted folder of the filesystem that is mounted there.
using FscryptMake = At<"fscrypt_make">;
using FscryptUnlock = At<"fscrypt_unlock">;
/// Removes its key from the kernel.
using FscryptLock = At<"fscrypt_lock">;

/// Asks the pod's cgroup for the limits. If it refuses, the publish goes on.
struct LimitIo {
  static constexpr std::string_view name = "limit_io";
  static constexpr Asks asks = Asks::node;
  std::string pod_uid;
  IoLimits limits;
  bool operator==(const LimitIo&) const = default;
};

/// Unmounts a path, and removes the empty folder or file below it.
template <Text Name>
struct Leave {
  static constexpr std::string_view name = Name.view();
  static constexpr Asks asks = Asks::node;
  std::string path;
  bool sync = true;  ///< writes the filesystem's dirty pages first
  bool operator==(const Leave&) const = default;
};
using Umount = Leave<"umount">;
using Unbind = Leave<"unbind">;

struct WriteStash {
  static constexpr std::string_view name = "write_stash";
  static constexpr Asks asks = Asks::node;
  std::string path;  ///< staging path
  Stash stash;
  bool operator==(const WriteStash&) const = default;
};
using DropStash = At<"drop_stash">;

}  // namespace step

using Step =
    std::variant<step::Look, step::WriteRecord, step::DropRecord, step::Fence, step::TryCredential, step::GiveUpClient,
                 step::Inherit, step::Evict, step::OpenImage, step::OpenNext, step::OpenTombstone, step::Lock,
                 step::CloseImage, step::SetFormatMarker, step::RemoveFormatMarker, step::WriteNote, step::StartSession,
                 step::StopSession, step::ChangeClient, step::KernelConnect, step::KernelReconfigure,
                 step::KernelResize, step::Disconnect, step::Tune, step::AcceptLoss, step::Dismiss, step::MapKrbd,
                 step::UnmapKrbd, step::MakeKey, step::ConfirmKey, step::LuksFormat, step::LuksNote, step::LuksOpen,
                 step::LuksResize, step::LuksClose, step::AddKey, step::NewKey, step::RemoveKey, step::Mkfs, step::Fsck,
                 step::Mount, step::Bind, step::LimitIo, step::Grow, step::Trim, step::Freeze, step::Thaw,
                 step::FscryptMake, step::FscryptUnlock, step::FscryptLock, step::Umount, step::Unbind,
                 step::WriteStash, step::DropStash>;

inline std::string_view name(const Step& step) {
  return std::visit([](const auto& of) { return of.name; }, step);
}
/// For a look it depends on the fact.
bool asks_cluster(const Step& step);

/// Returns the names of all steps, in the order of the variant.
template <class... Each>
constexpr std::array<std::string_view, sizeof...(Each)> names_of(const std::variant<Each...>*) {
  return {Each::name...};
}
inline constexpr auto step_names = names_of(static_cast<const Step*>(nullptr));

}  // namespace corbd::plan
