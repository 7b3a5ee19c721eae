#include "corbd/agent/program.hpp"

#include "corbd/handover/handover.hpp"
#include "corbd/keeper/keeper.hpp"
#include "corbd/manager/claims.hpp"
#include "corbd/nbd/devices.hpp"
#include "corbd/plan/record.hpp"
#include "corbd/rbd/clusters.hpp"
#include "corbd/rbd/version.hpp"
#include "corbd/v1/admin.pb.h"
#include "version.hpp"

namespace corbd::agent {

v1::Program program() {
  v1::Program own;
  own.set_version(CORBD_VERSION);
  own.set_commit(CORBD_GIT_HASH);
  own.set_ceph(rbd::ceph_release());
  own.set_librados(rbd::librados_version());
  own.set_librbd(rbd::librbd_version());
  own.set_handover_protocol(handover::kProtocol);
  own.set_record_version(plan::record_version);
  own.set_plain_record_version(plan::plain_record_version);
  own.set_incarnation_version(rbd::kIncarnationVersion);
  own.set_keeper_protocol(keeper::kProtocol);
  own.set_ledger_version(static_cast<int>(nbd::kLedgerVersion));
  own.set_claim_version(manager::kClaimVersion);
  return own;
}

}  // namespace corbd::agent
