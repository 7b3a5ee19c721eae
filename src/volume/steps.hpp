// Carries out one step of the plan. Each subject has its class of steps.
#pragma once

#include "adopt_steps.hpp"
#include "device_steps.hpp"
#include "fscrypt_steps.hpp"
#include "holder_steps.hpp"
#include "image_finder.hpp"
#include "krbd_steps.hpp"
#include "luks_steps.hpp"
#include "mount_steps.hpp"
#include "record_steps.hpp"
#include "stash_steps.hpp"

namespace corbd::volume {

/// Returns the failpoints: one before and one after each step, and one inside each step that has two effects.
std::vector<std::string> step_places();

class Steps {
 public:
  Steps(executor control, Clock& clock, const Ports& ports, const Config& config, const HealthTracker& health,
        CloseInBackground close_in_background, SnapshotSink snapshots, DeviceSteps::Numbers numbers,
        ManualChecks& checks)
      : ports_(ports),
        records_(clock, ports, config),
        images_({clock, ports, config}, health, close_in_background, std::move(snapshots)),
        clients_({clock, ports, config}, control, images_, health, std::move(close_in_background)),
        devices_({clock, ports, config}, images_, clients_, health, std::move(numbers)),
        holders_({clock, ports, config}, health),
        finder_(clock, ports, config),
        krbd_({clock, ports, config}),
        adopt_({clock, ports, config}, health),
        keys_({clock, ports, config}),
        luks_({clock, ports, config}, keys_, std::move(control)),
        fscrypt_({clock, ports, config}, keys_, luks_),
        mounts_({clock, ports, config}, health, checks),
        stash_(clock, ports, config) {}

  /// Runs the step between its two failpoints. Its results go into volume.facts.
  task<result<>> run(Volume& volume, const Step& step, const Wish& wish);
  /// Call this after a step: see RecordSteps.
  task<> keep_credential(Volume& volume) { return records_.keep_credential(volume); }
  /// Call this at the end of an operation.
  task<> end_client_change(Volume& volume) { return clients_.end_change(volume); }
  /// Whether a record or a key is being written, or removed.
  bool writing() const { return records_.writing(); }

 private:
  task<result<>> carry_out(Volume& volume, const Step& step, const Wish& wish);
  task<result<>> look(Volume& volume, const step::Look& step, const Wish& wish);
  task<result<>> ask_attachment(Volume& volume);
  task<result<>> ask_secret(Volume& volume);
  const Ports& ports_;
  RecordSteps records_;
  ImageSteps images_;
  ClientSteps clients_;
  DeviceSteps devices_;
  HolderSteps holders_;
  ImageFinder finder_;
  KrbdSteps krbd_;
  AdoptSteps adopt_;
  KeySteps keys_;
  LuksSteps luks_;
  FscryptSteps fscrypt_;
  MountSteps mounts_;
  StashSteps stash_;
};

}  // namespace corbd::volume
