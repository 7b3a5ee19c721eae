// The volumes of this node: wishes (shell.cpp), links (shell_links.cpp) and queries (shell_view.cpp).
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "corbd/core/gate.hpp"
#include "corbd/volume/shell.hpp"
#include "steps.hpp"
#include "usage_reader.hpp"

namespace corbd::volume {

class Shell::Impl {
  /// A handover, by several that give.
  struct Handover {
    Recipient recipient;
    std::size_t given = 0;
    bool refused = false;
  };

 public:
  Impl(executor control, Clock& clock, Ports ports, Config config)
      : control_(control),
        clock_(clock),
        ports_(std::move(ports)),
        config_(std::move(config)),
        gate_(control, clock),
        steps_(
            control_, clock_, ports_, config_,
            [this](Volume& volume, const std::string& why) { report_failure(volume, why); },
            [this](auto link, auto image) { gate_.spawn(close_in_background(std::move(link), std::move(image))); },
            [this](const Volume& volume) { return numbers_of_others(volume); },
            [this](const Volume& volume, const Notice& notice) {
              for (auto* listener : listeners_) listener->notify(volume.id, notice);
            }) {}

  task<result<>> start();
  task<result<>> want(std::string id, Wish wish, Until until);
  task<result<host::Usage>> usage(std::string id, std::string path, Until until);
  task<Users> users(std::string cluster_id, Until until);
  task<result<Holding>> holders(ImageAt at, bool take, Until until);
  std::vector<Status> status() const;
  std::optional<Status> status(const std::string& id) const;
  std::vector<Unclaimed> unclaimed() const;
  std::vector<Unclaimed> left_to_kernel() const;
  std::vector<Change> timeline(const std::string& id) const;
  task<> stop(Until until);
  task<result<std::vector<std::string>>> preopen(Until until);
  task<> fence_early(Until until);
  std::vector<std::string> answering(const std::vector<std::string>& ids) const;
  task<bool> quiesce();
  task<std::size_t> give(Recipient recipient);
  bool cordoned_ = false;
  std::vector<Listener*> listeners_;

 private:
  Volume& volume_for(const std::string& id);
  void forget_if_idle(const std::string& id);
  task<> run(Volume& volume, std::shared_ptr<Operation> operation, Until lock_until);
  task<> outlast_holders(Volume& volume, Operation& operation, Until until);
  void note_outcome(Volume& volume, const Operation& operation);
  void tell_read_only(const Volume& volume, const Operation& operation) const;
  task<result<Holding>> look_at_holders(const image::Access& to, const image::Key& key, const ImageAt& at, bool take,
                                        Until until);
  task<result<>> fulfil(Volume& volume, Wish wish);
  result<Observation> look_at(Volume& volume, const Wish& wish);
  task<> pause(Volume& volume);
  task<result<>> step_failed(Volume& volume, const Wish& wish, Step step, Error error);
  task<result<>> pursue(Volume& volume, Wish wish);
  task<> leave_image(Volume& volume, const Wish& wish);
  task<> leave_without_device(Volume& volume, const Wish& wish);
  task<result<>> make_durable(Volume& volume, const Wish& wish, bool had_record);
  task<result<>> prepare(Volume& volume, const Wish& wish);
  bool shows_at(const Volume& volume, const std::string& path) const;
  host::MountTable mounts_now() const;
  void observe_neighbours(Observation& seen, const Volume& volume) const;
  std::string path_owner(const Observation& seen, const Volume& volume, const Wish& wish) const;
  std::string device_owner(const Volume& volume, const std::vector<host::Mount>& there,
                           const std::string& staging_path) const;
  std::vector<std::uint32_t> numbers_of_others(const Volume& volume) const;
  void report_failure(Volume& volume, const std::string& why);
  void link_dead(device::Kind kind, std::uint32_t index);
  void note_stall(Volume& volume);
  task<> watch_stall(Volume& volume);
  bool is_all_sent(const Volume& volume) const;
  task<> drain(Volume& volume, Until until);
  task<> drain_all(Until until);
  task<> end_links();
  task<result<>> close_for_next(Volume& volume, Until until);
  task<result<device::LinkSocket>> end_for_next(Volume& volume, Until until);
  void give_later(Volume& volume, const Error& why);
  task<> give_one(Volume& volume, Handover& handover);
  task<> give_some(Handover& handover);
  struct Preopening;
  task<result<Preopening>> plan_preopening(Until until);
  task<> connect_ahead(image::Access access, std::size_t images, Until until);
  task<> preopen_images(Preopening& preopening);
  task<> fence_one(image::Access access, Until until);
  static task<> close_in_background(std::unique_ptr<device::Link> link, std::unique_ptr<image::Image> image);
  void note_health(Volume& volume, const std::string& why);

  executor control_;
  Clock& clock_;
  Ports ports_;
  Config config_;
  Gate gate_;
  /// Of whoever waits for several volumes. Here, because a dying process ends coroutines in any order.
  std::list<Gate> drains_;
  Steps steps_;
  UsageReader usage_reader_{control_, clock_, ports_, gate_};
  std::map<std::string, std::unique_ptr<Volume>> volumes_;
  bool leaving_ = false;
  std::deque<std::string> to_give_;  ///< since quiesce(); the last one first
};

}  // namespace corbd::volume
