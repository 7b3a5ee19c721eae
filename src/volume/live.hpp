// What this process holds for one volume, and the operations under way on it.
#pragma once

#include <list>
#include <memory>

#include "corbd/core/async_lock.hpp"
#include "corbd/volume/shell.hpp"

namespace corbd::volume {

/// One wish being carried out. Callers join it by wanting the same.
struct Operation {
  Operation(Wish wanted, executor control, Clock& clock) : wish(std::move(wanted)), done(std::move(control), clock) {}
  Wish wish;
  Event done;
  result<> outcome;
};

struct Live {
  Live(std::string volume_id, executor control, Clock& clock)
      : id(volume_id), lock(std::move(control), clock, "the operation under way on volume " + volume_id) {}
  std::string id;
  AsyncLock lock;
  std::list<std::shared_ptr<Operation>> operations;

  std::optional<Record> record;
  std::optional<Record> saving;  ///< on its way to the disk; it counts already for other volumes
  Secret key;
  bool key_saved = false;
  std::unique_ptr<image::Image> image;
  std::unique_ptr<device::Link> link;
  bool attached = false;
  bool lock_held = false;
  Facts facts;
  std::optional<Error> last_error;
};

}  // namespace corbd::volume
