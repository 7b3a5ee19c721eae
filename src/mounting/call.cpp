#include <sysexits.h>

#include <boost/json/serialize.hpp>
#include <filesystem>
#include <iostream>

#include "corbd/core/display.hpp"
#include "corbd/core/file.hpp"
#include "corbd/mounting/mounting.hpp"
#include "corbd/rpc/calls.hpp"
#include "corbd/rpc/json.hpp"
#include "host_volume.hpp"
#include "unit.hpp"
#include "view.hpp"
#include "work.hpp"

namespace corbd::mounting {
namespace {

constexpr int kDone = 0, kFailed = 1, kNoPlugin = 3;

int failed(const std::string& text) {
  complain(text);
  return kFailed;
}

int list_mounts(Mounter& mounter, const Options& ask) {
  const auto held = mounter.run(mounter.manager().list(mounter.within(limit_of(ask))));
  if (!held) return failed(held.error().text);
  std::cout << (ask.output == "json" ? boost::json::serialize(rpc::document({{"mounts", mounts_json(*held)}})) + "\n"
                                     : mounts_table(*held))
            << std::flush;
  return kDone;
}

task<result<std::string>> one_of(Mounter& mounter, const Options& ask, Until until) {
  switch (ask.what) {
    case Options::What::unmount:
      return unmount_one(mounter, ask.spec.dir, until);
    case Options::What::expand:
      return expand_one(mounter, ask.spec.dir, until);
    default:
      return mount_one(mounter, ask.spec, until);
  }
}

task<result<Results>> all_of(Mounter& mounter, const Options& ask, Until until) {
  if (ask.refresh) return refresh_all(mounter, ask, until);
  return ask.what == Options::What::mount ? mount_all(mounter, ask, until) : unmount_all(mounter, ask, until);
}

/// `until`: limit for all of them.
int act(Mounter& mounter, const Options& ask, Until until) {
  if (ask.all || ask.refresh) {
    const auto done = mounter.run(all_of(mounter, ask, until));
    if (!done) return failed(done.error().text);
    return done->failed == 0 ? kDone : kFailed;
  }
  const auto done = mounter.run(one_of(mounter, ask, mounter.within(limit_of(ask))));
  if (!done) return failed(done.error().text);
  std::cout << *done << std::endl;
  return kDone;
}

/// Makes a path absolute, from the shell's folder. The manager resolves links.
std::string absolute(const std::string& dir) {
  std::error_code failed;
  const auto made = std::filesystem::absolute(dir, failed).lexically_normal();
  return failed ? dir : made.string();
}

/// Returns which options contradict each other; empty if none do.
std::string find_mistake(const Options& ask) {
  const bool mounts = ask.what == Options::What::mount;
  if (ask.what == Options::What::list || ask.what == Options::What::host_volume) return "";
  if (ask.refresh && (ask.all || ask.write_unit || !ask.spec.image.empty()))
    return "--refresh-keys takes neither an image, nor a folder, nor --all, nor --write-unit: it is for all that is "
           "mounted";
  if (ask.refresh) return "";
  if (ask.all && (!ask.spec.image.empty() || !ask.spec.dir.empty() || ask.write_unit))
    return mounts ? "--all takes neither an image, nor a folder, nor --write-unit"
                  : "--all takes no folder: it unmounts all";
  if (ask.all) return "";
  if (mounts && (ask.spec.image.empty() || ask.spec.dir.empty()))
    return "corbd mount needs an image and a folder, `corbd mount rbd/db /srv/db`, or --all";
  if (ask.what == Options::What::expand) return "";
  return ask.spec.dir.empty() ? "corbd unmount needs a folder, `corbd unmount /srv/db`, or --all" : "";
}

}  // namespace

void complain(const std::string& text) { std::cerr << "corbd: " << for_terminal(text) << std::endl; }

int limit_of(const Options& ask) {
  constexpr int stop = 80, otherwise = 300;
  if (ask.timeout_s > 0) return ask.timeout_s;
  return ask.all && ask.what == Options::What::unmount ? stop : otherwise;
}

int run(const Options& given) {
  Options ask = given;
  if (const std::string wrong = find_mistake(ask); !wrong.empty()) return complain(wrong), EX_USAGE;
  if (!ask.spec.dir.empty()) ask.spec.dir = absolute(ask.spec.dir);
  if (ask.write_unit) {
    std::error_code failed;
    const auto program = std::filesystem::canonical("/proc/self/exe", failed);
    std::cout << unit_of(ask, failed ? "/usr/bin/corbd" : program.string()) << std::flush;
    return kDone;
  }
  for (const auto& folder : {ask.root, ask.runtime_dir})
    if (auto made = make_folder(folder, 0700); !made) return failed(made.error().text);
  if (ask.what == Options::What::host_volume) return serve_host_volume(ask);
  Mounter mounter(ask);
  if (ask.what == Options::What::list) return list_mounts(mounter, ask);
  const Until until = mounter.within(limit_of(ask));
  if (ask.wait) {
    const auto ready = mounter.run(mounter.manager().wait_ready(until));
    if (!ready) return complain(ready.error().text), kNoPlugin;
  } else if (const auto there = rpc::answers(ask.endpoint); !there) {
    complain(there.error().text +
             ". Start the agent (`systemctl start corbd`, or `corbd run --standalone`), wait for "
             "it with --wait, or name another --endpoint");
    return kNoPlugin;
  }
  return act(mounter, ask, until);
}

}  // namespace corbd::mounting
