#include "support/catch.hpp"
#include "view.hpp"

using namespace corbd;

TEST_CASE("corbd version shows what another version meets") {
  v1::Program program;
  program.set_version("0.1.0");
  program.set_commit("0123456789ab");
  program.set_ceph("20.2.4");
  program.set_librados("3.0.0");
  program.set_librbd("1.20.0");
  program.set_handover_protocol(2);
  program.set_record_version(2);
  program.set_plain_record_version(1);
  program.set_incarnation_version(3);
  program.set_keeper_protocol(4);
  program.set_ledger_version(5);
  program.set_claim_version(6);
  CHECK(cli::program_view(program) ==
        "corbd 0.1.0 (0123456789ab)\nCeph libraries: 20.2.4 (librados 3.0.0, librbd 1.20.0)\nhandover: version 2\n"
        "records: up to version 2, written from version 1\nincarnation files: version 3\nkeeper: protocol 4\n"
        "ledgers: version 5\nclaims: version 6\n");
}
