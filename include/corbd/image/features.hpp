// The bits of an image's features, and corbd's treatment of each.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "corbd/core/result.hpp"

namespace corbd::image {

/// Bits in librbd's numbering (Ceph: rbd/features.h).
struct Features {
  std::uint64_t bits = 0;        ///< "features" of `rbd info`
  std::uint64_t operations = 0;  ///< "op_features" of `rbd info`
  bool operator==(const Features&) const = default;
};

struct Feature {
  std::uint64_t bit;
  std::string_view name;
  std::string_view refused;  ///< why corbd serves no image with it, neither to write nor to read; empty: it does
  errc code = errc::ok;      ///< code of the refusal
};

inline constexpr std::uint64_t kExclusiveLock = 1 << 2, kDirtyCache = 1 << 11;

inline constexpr std::array<Feature, 12> kFeatures{{
    {1 << 0, "layering", ""},
    {1 << 1, "striping", ""},
    {kExclusiveLock, "exclusive-lock", ""},
    {1 << 3, "object-map", ""},
    {1 << 4, "fast-diff", ""},
    {1 << 5, "deep-flatten", ""},
    {1 << 6, "journaling", ""},
    {1 << 7, "data-pool", ""},
    {1 << 8, "operations", ""},  // Features::operations says which
    {1 << 9, "migrating", ""},   // librbd itself refuses to write the source of a migration
    {1 << 10, "non-primary", "only rbd-mirror writes it. Promote it first: `rbd mirror image promote IMAGE`",
     errc::failed_precondition},
    {kDirtyCache, "dirty-cache",
     "the persistent cache of another client has writes that are not in the cluster yet. `rbd status IMAGE` names that "
     "client's host. Start the client there again and end it cleanly, or run `rbd persistent-cache flush IMAGE` there. "
     "Only if that cache is lost for good, give its writes up: `rbd persistent-cache invalidate IMAGE`",
     errc::unsafe_config},
}};
inline constexpr std::array<Feature, 4> kOperations{{
    {1 << 0, "clone-parent", ""},
    {1 << 1, "clone-child", ""},
    {1 << 2, "group", ""},
    {1 << 3, "snap-trash", ""},
}};

/// Returns "exclusive-lock, bit 13", for example.
std::string names_of(std::uint64_t features);

/// Returns why corbd does not serve an image with these features; nothing: it serves it. An image with an unknown bit
/// may be read: librbd itself refuses one that it cannot read. `which`: "image rbd/csi-vol-1".
std::optional<Error> refuse(const Features& features, bool to_write, const std::string& which);

}  // namespace corbd::image
