// Port to the kernel's own rbd client (krbd): it maps an image as /dev/rbd<n> and serves it without this agent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "corbd/core/fields.hpp"
#include "corbd/core/helper_owner.hpp"
#include "corbd/core/result.hpp"
#include "corbd/core/secret.hpp"
#include "corbd/core/task.hpp"
#include "corbd/core/wait.hpp"
#include "corbd/device/device.hpp"
#include "corbd/image/image.hpp"

namespace corbd::device {

/// A device of the kernel's client, and what it shows.
struct Mapped {
  Seen seen;
  image::Key key;    ///< of the head; snap_id says nothing
  image::Name name;  ///< when it was mapped
  bool head = true;  ///< not of a snapshot
};

struct MapArgs {
  std::vector<std::string> monitors;  ///< as in config.json; names are resolved
  std::string user;                   ///< without "client."
  Secret key;
  image::Name name;  ///< where the image was found; the kernel knows it by name only
  image::Key image;  ///< the image that must be there
  bool read_only = false;
  std::string options;  ///< further options of the kernel, comma separated
  static constexpr std::tuple fields{
      fields::required("monitors", &MapArgs::monitors), fields::required("user", &MapArgs::user),
      fields::required("key", &MapArgs::key),           fields::required("name", &MapArgs::name),
      fields::required("image", &MapArgs::image),       fields::required("read_only", &MapArgs::read_only),
      fields::required("options", &MapArgs::options)};
};

class KernelClient {
 public:
  virtual ~KernelClient() = default;
  /// failed_precondition "modprobe rbd" without the module.
  virtual result<Abilities> abilities() const = 0;
  /// Every mapped image, from sysfs; cannot hang.
  virtual result<std::vector<Mapped>> inventory() const = 0;
  /// Makes a device of that very image. The caller made sure that there is none. not_found when another image has its
  /// name by now. The kernel takes the exclusive lock before this returns, unless it is read-only, and gives it to a
  /// client that asks for it.
  virtual task<result<>> map(MapArgs args, HelperOwner owner, Until until) = 0;
  /// The caller made sure that nobody uses it. in_use when somebody does. Succeeds too when it is not there. `options`
  /// are the kernel's: "force".
  virtual task<result<>> unmap(std::uint32_t index, std::string options, HelperOwner owner, Until until) = 0;
};

/// Those of an inventory that show this image. It goes by identity, because a name may be another image's by now.
std::vector<Seen> of_image(const std::vector<Mapped>& all, const image::Key& key);
/// Those that were mapped by this name, which is all that ceph-csi remembers of an image.
std::vector<Seen> of_name(const std::vector<Mapped>& all, const image::Name& name);

}  // namespace corbd::device
