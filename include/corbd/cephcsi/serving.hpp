// How a volume is to be served, read from its attributes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "corbd/core/fields.hpp"

namespace corbd::cephcsi {

/// The client that is to serve a volume: the agent over nbd, the kernel's own, or the kernel's if it knows all features
/// of the image.
enum class Mounter { nbd, krbd, krbd_if_able };

/// A stage's way with a filesystem that is damaged: `fsck` repairs what needs no person and refuses the rest,
/// `refuse` repairs nothing, and `read_only` mounts it without a write.
enum class OnDamage { fsck, refuse, read_only };

/// Options of the volume's attributes for the kernel's client, comma separated.
struct KernelOptions {
  std::string map, unmap;
  static constexpr std::tuple fields{fields::required("map", &KernelOptions::map),
                                     fields::required("unmap", &KernelOptions::unmap)};
  bool operator==(const KernelOptions&) const = default;
};

/// How the volume's attributes want the device served.
struct Serving {
  bool trim = true;                                  ///< the device offers to discard
  std::optional<std::uint64_t> dead_conn_timeout_s;  ///< absent: the agent's default
  std::map<std::string, std::string> config;         ///< Ceph's options of the volume's connection
  bool cache_off = false;                            ///< an rbd-nbd that ceph-csi starts has no cache either
  bool same_timeout = false;                         ///< rbd-nbd's device has the same io_timeout as corbd's
  std::optional<bool> quiesce;                       ///< snapshots freeze its filesystem; absent: the agent's default
  static constexpr std::tuple fields{fields::required("trim", &Serving::trim),
                                     fields::required("config", &Serving::config),
                                     fields::rare("quiesce", &Serving::quiesce),
                                     fields::rare("cache_off", &Serving::cache_off),
                                     fields::rare("same_timeout", &Serving::same_timeout),
                                     fields::rare("dead_conn_timeout_s", &Serving::dead_conn_timeout_s)};
  bool operator==(const Serving&) const = default;
};

}  // namespace corbd::cephcsi
