// An image that librbd has opened, and the checks whether it may be used. Pool threads, except where noted.
#pragma once

#include <rbd/librbd.h>

#include <optional>
#include <string>

#include "config_guard.hpp"
#include "connections.hpp"
#include "lockers.hpp"

namespace corbd::rbd {

/// The RADOS object that describes the image and carries its lock and watches.
inline std::string header_of(const image::Key& key) { return "rbd_header." + key.image_id; }

/// Where the data of an image are.
struct Layout {
  std::string prefix;  ///< names of the objects begin with it: "rbd_data.10226b8b4567"
  std::int64_t pool_id = 0;
  std::uint64_t object_bytes = 1, stripe_bytes = 1, stripe_count = 1;
};

/// It does not change while the image is open. Any thread.
struct ImageHandle {
  std::string text() const { return pool.text + "/" + name; }
  std::string header() const { return header_of(key); }
  bool exclusive_lock() const { return (features & RBD_FEATURE_EXCLUSIVE_LOCK) != 0; }

  Connection& connection;
  const bool read_only;
  const image::Key key;
  OpenPool pool = {};
  rbd_image_t image = nullptr;
  std::string name = {};  ///< name at the time of opening
  std::uint64_t features = 0;
  Layout layout = {};
};

/// The result of a check of an open image.
struct Details {
  std::uint64_t size = 0;
  image::Features features;
  std::string name;
  bool secondary = false;  ///< another cluster's copy is the primary one, if that was asked
  bool caches_before_flush = false;
  image::ReadPolicy read_policy{};
  bool stamps_writes = true;
  std::optional<Error> unsafe, decides_cache;
  std::optional<Lockers> lockers;      ///< if asked for
  std::optional<std::string> refused;  ///< image::Image::refused_again(), if look_at() could ask
};
struct Purpose {
  bool writes = false;
  bool despite_dirty_cache = false;  ///< image::OpenOptions
};
result<Details> read_details(const ImageHandle& opened, bool with_lockers = false);
/// Does the work of read_details(), and asks whether the next open for that purpose would be refused.
result<Details> look_at(const ImageHandle& opened, Purpose purpose, bool with_lockers);
/// Returns why nobody may open it now for that purpose. `name`: with its pool. Any thread.
std::optional<Error> why_refused(const Details& details, Purpose purpose, const std::string& name);

}  // namespace corbd::rbd
