// ceph-csi's journal: the object csi.volume.<uuid> in the volume's pool, whose omap has the image's name
// (docs/sources.md#journal). Everything here blocks: pool threads only.
#pragma once

#include <optional>

#include "connections.hpp"

namespace corbd::rbd {

/// The content of a journal; "" for missing values.
struct Journal {
  bool there = false;  ///< the object exists
  std::string image_name, image_id;
  std::string kms_id, encryption_type, tenant;
};

/// Takes one operation of the cluster. A missing object counts as an empty journal.
result<Journal> read_journal(Connection& connection, const OpenPool& pool, const std::string& uuid);
/// Writes into a journal that exists.
result<> write_image_id(Connection& connection, std::int64_t pool_id, const std::string& ns, const std::string& uuid,
                        const std::string& image_id);

/// An image by name, not yet opened.
struct Target {
  std::int64_t pool_id = -1;
  OpenPool pool;
  image::Name name;
};

struct Located {
  Target target;
  std::string kms_id, encryption_type, tenant;
  std::optional<std::int64_t> lacks_id;  ///< the journal's pool, if the journal lacks the image's ID
};

/// Finds the image of a reserved volume by its journal, or by what is known without one.
result<Located> find_by_journal(Connection& connection, const image::Reserved& reserved, const std::string& ns);

}  // namespace corbd::rbd
