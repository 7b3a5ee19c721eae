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

/// A device of the kernel's client, as sysfs shows it.
struct Mapped {
  Seen seen;
  image::Key key;    ///< key of the image's head; snap_id has no meaning
  image::Name name;  ///< name at the time of the map
  bool head = true;  ///< false: it maps a snapshot
};

/// Arguments for a new device of the kernel's client.
struct MapArgs {
  std::vector<std::string> monitors;  ///< as in config.json; names are resolved
  std::string user;                   ///< without "client."
  Secret key;
  image::Name name;  ///< name by which the image was found; the kernel knows it only by name
  image::Key image;  ///< the image that must have that name
  bool read_only = false;
  std::string options;  ///< further options for the kernel, comma separated
  static constexpr std::tuple fields{
      fields::required("monitors", &MapArgs::monitors), fields::required("user", &MapArgs::user),
      fields::required("key", &MapArgs::key),           fields::required("name", &MapArgs::name),
      fields::required("image", &MapArgs::image),       fields::required("read_only", &MapArgs::read_only),
      fields::required("options", &MapArgs::options)};
};

/// The port to the kernel's client. Control thread.
class KernelClient {
 public:
  virtual ~KernelClient() = default;
  /// failed_precondition "modprobe rbd": the module is not loaded.
  virtual result<Abilities> abilities() const = 0;
  /// Returns every mapped image, from sysfs; cannot hang.
  virtual result<std::vector<Mapped>> inventory() const = 0;
  /// Makes a device of that very image. The caller has checked that there is none. not_found: another image has the
  /// name by now. The kernel takes the exclusive lock before this returns, unless the map is read-only, and gives it to
  /// a client that asks for it.
  virtual task<result<>> map(MapArgs args, HelperOwner owner, Until until) = 0;
  /// Removes a device that nobody uses, which the caller has checked. in_use: somebody does. Succeeds too if it does
  /// not exist. `options` are the kernel's: "force".
  virtual task<result<>> unmap(std::uint32_t index, std::string options, HelperOwner owner, Until until) = 0;
};

/// Returns the devices that show this image. It compares identities, because a name may belong to another image by now.
std::vector<Seen> of_image(const std::vector<Mapped>& all, const image::Key& key);
/// Returns the devices that were mapped by this name, which is all that ceph-csi remembers of an image.
std::vector<Seen> of_name(const std::vector<Mapped>& all, const image::Name& name);

}  // namespace corbd::device
