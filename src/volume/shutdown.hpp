// Ends an agent's service of its volumes: it ends their links once the requests read from them are answered, or hands
// them to the next agent.
#pragma once

#include <deque>
#include <list>
#include <map>

#include "closes.hpp"
#include "kernel_watch.hpp"
#include "secret_watch.hpp"
#include "steps.hpp"
#include "trimmer.hpp"
#include "usage_reader.hpp"

namespace corbd::volume {

class Shutdown {
 public:
  Shutdown(executor control, Clock& clock, const Ports& ports, VolumeMap& volumes, Gate& gate, Closes& closes,
           Steps& steps, UsageReader& usage, KernelWatch& kernel, SecretWatch& secrets, Trimmer& trimmer)
      : control_(std::move(control)),
        clock_(clock),
        ports_(ports),
        volumes_(volumes),
        gate_(gate),
        closes_(closes),
        steps_(steps),
        usage_(usage),
        kernel_(kernel),
        secrets_(secrets),
        trimmer_(trimmer) {}
  /// Whether nothing new begins any more.
  bool begun() const { return begun_; }
  /// Implements Shell::stop() and the calls of a handover.
  task<> stop(Until until);
  task<result<>> quiesce();
  void resume();
  task<std::size_t> hand_over(Recipient recipient);
  std::vector<std::string> answering(const std::vector<std::string>& ids) const;
  task<> restore_keys(std::vector<std::string> ids, Until until);

 private:
  /// A file of a volume that the disk no longer has as this agent wrote it.
  enum class Loss { record, changed_record, key };
  /// A handover, carried out by several coroutines at once.
  struct Handover {
    Recipient recipient;
    std::size_t handed_over = 0;
    bool refused = false;
  };
  task<> drain(Volume& volume, Until until);
  task<> drain_all(Until until);
  task<> end_links();
  task<result<device::LinkSocket>> end_for_next(Volume& volume, Until until);
  void hand_over_later(Volume& volume, const Error& why);
  std::size_t watched_stalls() const;
  static std::string needs_record(const Volume& volume, std::optional<Loss> loss);
  static Error restored(const Volume& volume, Loss loss);
  task<std::optional<Loss>> loss_of(Volume& volume, const std::vector<Record>& there);
  task<bool> has_lost_key(Volume& volume, Record record);
  task<result<>> find_lost_files(Until until);
  std::optional<Loss> lost(const Volume& volume) const;
  void note_unwritten(const Volume& volume, const Error& why);
  task<result<>> write_again(Volume& volume, std::optional<Loss> loss);
  task<> restore_key(Volume& volume, Until until);
  task<> rewrite_record(Volume& volume, Until until);
  task<Waited> rewrite_records(Until until);
  task<> hand_over_one(Volume& volume, Handover& handover);
  task<> hand_over_some(Handover& handover);

  executor control_;
  Clock& clock_;
  const Ports& ports_;
  VolumeMap& volumes_;
  Gate& gate_;
  Closes& closes_;
  Steps& steps_;
  UsageReader& usage_;
  KernelWatch& kernel_;
  SecretWatch& secrets_;
  Trimmer& trimmer_;
  bool begun_ = false;
  /// Gates of coroutines that wait for several volumes. They are members, because a dying process ends coroutines in
  /// any order.
  std::list<Gate> gates_;
  std::deque<std::string> to_hand_over_;  ///< filled by quiesce(); the last one first
  std::map<std::string, Loss> lost_;      ///< at quiesce(), by volume ID
  std::optional<Error> unwritten_;        ///< set by quiesce(): why the next agent cannot rely on the files it read
};

}  // namespace corbd::volume
