// An agent's control plane on a real cluster, without a kernel: librbd, records, planner and healer are real.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "corbd/core/process.hpp"
#include "corbd/heal/healer.hpp"
#include "corbd/host/helpers.hpp"
#include "corbd/volume/shell.hpp"
#include "rbd_lab.hpp"
#include "support/still_ports.hpp"

namespace corbd::lab {

/// Its files are in `dir`. `beside`: as rbd::Config has it.
struct ControlPlane {
  explicit ControlPlane(const std::string& dir, bool beside = false,
                        std::unique_ptr<test::still::Devices> of = std::make_unique<test::still::Devices>())
      : clock(make_real_clock(io.get_executor())),
        pool(io.get_executor(), *clock, 8),
        devices(std::move(of)),
        kms(kms::make_kms(io.get_executor(), *clock, pool, nullptr, {dir, "", ""})),
        records(volume::make_record_store(pool, dir + "/state", dir + "/runtime")),
        clusters(rbd::make_clusters(io.get_executor(), *clock, pool, config(dir, beside))),
        shell(io.get_executor(), *clock, ports(), volume_config()),
        healer(io.get_executor(), *clock, shell, {}) {}

  static rbd::Config config(const std::string& dir, bool beside) {
    for (const char* folder : {"/state/incarnations", "/runtime"}) std::filesystem::create_directories(dir + folder);
    rbd::Config made;
    made.boot_id = read_boot_id().value();
    made.incarnations_dir = dir + "/state/incarnations";
    made.predecessor_running = beside;
    return made;
  }
  static volume::Config volume_config() {
    volume::Config made;
    made.boot_id = read_boot_id().value();
    made.policy.driver = "lab";
    return made;
  }
  volume::Ports ports() {
    return {.clusters = *clusters,
            .devices = *devices,
            .kernel = kernel,
            .mounts = mounts,
            .filesystems = filesystems,
            .daemons = daemons,
            .luks = *luks,
            .fscrypt = *fscrypt,
            .kms = *kms,
            .records = *records,
            .directory = directory,
            .files = files,
            .orchestrator = nobody};
  }
  template <class Ready>
  void run_until(Ready ready) {
    while (!ready()) io.run_one_for(1s);
  }
  template <class T>
  T run(task<T> work) {
    std::optional<T> out;
    asio::co_spawn(io, std::move(work), [&](std::exception_ptr, T value) { out.emplace(std::move(value)); });
    run_until([&] { return out.has_value(); });
    return std::move(*out);
  }
  /// All at once.
  void stage(const std::vector<plan::Staged>& wishes) {
    auto left = wishes.size();
    for (const auto& wish : wishes)
      asio::co_spawn(io, shell.want(wish.source.image, plan::Wish(wish), {}),
                     [&left](std::exception_ptr, result<> done) {
                       if (!done) throw std::runtime_error(done.error().text);
                       --left;
                     });
    run_until([&] { return left == 0; });
  }

  asio::io_context io;
  asio::executor_work_guard<asio::io_context::executor_type> alive{io.get_executor()};
  std::unique_ptr<Clock> clock;
  BlockingPool pool;
  std::unique_ptr<test::still::Devices> devices;
  test::still::KernelClient kernel;
  test::still::Mounts mounts;
  test::still::Filesystems filesystems;
  test::still::Daemons daemons;
  HelperPool helpers{io.get_executor(), *clock, {}};
  std::unique_ptr<host::Luks> luks = host::make_luks(helpers);
  std::unique_ptr<host::Fscrypt> fscrypt = host::make_fscrypt(helpers);
  std::unique_ptr<kms::Kms> kms;
  std::unique_ptr<volume::RecordStore> records;
  std::unique_ptr<image::Clusters> clusters;
  test::still::ClusterDirectory directory{env("CORBD_LAB_MON")};
  test::still::NodeFiles files;
  test::still::Orchestrator nobody;
  volume::Shell shell;
  heal::Healer healer;
};

/// The volume has its image's name.
inline plan::Staged staged(const std::string& image) {
  plan::Staged wish;
  wish.path = "/staging/" + image;
  wish.capability.block = true;
  wish.source = {"lab", pool_name(), "", image, ""};
  wish.credential.user = access().user;
  wish.credential.key = access().key;
  return wish;
}

}  // namespace corbd::lab
