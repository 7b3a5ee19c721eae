// corbd-provisioner ENDPOINT runs the test provisioner as a process, until its standard input ends. CORBD_LAB_MON,
// _USER, _KEY and _POOL name the cluster (scripts/lab/ceph env DIR).
#include <cstdio>

#include "rbd_lab.hpp"
#include "support/controller.hpp"

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fputs("usage: corbd-provisioner unix:///path/to.sock\n", stderr);
    return 2;
  }
  const corbd::lab::Admin admin;
  corbd::test::Controller controller(admin.cluster, "lab", corbd::lab::pool_name(), argv[1]);
  while (std::getchar() != EOF) {
  }
  controller.server().Shutdown();
  return 0;
} catch (const std::exception& failed) {
  std::fprintf(stderr, "corbd-provisioner: %s\n", failed.what());
  return 1;
}
