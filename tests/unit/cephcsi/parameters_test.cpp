#include "corbd/cephcsi/parameters.hpp"

#include "support/catch.hpp"

using namespace corbd;
using cephcsi::MapOptions;
using cephcsi::parse_nbd_options;
using cephcsi::read_parameters;
using cephcsi::split_map_options;

TEST_CASE("mapOptions are given to mounters by their name, in any case; what has no name is krbd's") {
  struct Row {
    std::string text;
    MapOptions options;
  };
  const auto row = GENERATE_COPY(values<Row>({
      {"", {}},
      {";;", {}},
      {"lock_on_read,queue_depth=1024", {"lock_on_read,queue_depth=1024", ""}},
      {"nbd:", {}},
      {"nbd:try-netlink,io-timeout=330", {"", "try-netlink,io-timeout=330"}},
      {"krbd:a;nbd:b", {"a", "b"}},
      {" KRBD :a; Nbd:b", {"a", "b"}},
      {"a;nbd:b;krbd:c", {"c", "b"}},
      {"nbd:a;nbd:b;", {"", "b"}},
      {"krbd:read_from_replica=localize,crush_location=zone:z1",
       {"read_from_replica=localize,crush_location=zone:z1", ""}},
  }));
  const auto options = split_map_options(row.text);
  REQUIRE(options);
  CHECK((*options == row.options));
}

TEST_CASE("corbd/on-damage has three words, fsck by default, and any other is refused with all of them",
          "[failure:47]") {
  using cephcsi::OnDamage;
  CHECK(read_parameters({})->on_damage == OnDamage::fsck);
  CHECK(read_parameters({{"corbd/on-damage", ""}})->on_damage == OnDamage::fsck);
  for (const auto policy : {OnDamage::fsck, OnDamage::refuse, OnDamage::read_only})
    CHECK(read_parameters({{cephcsi::kOnDamage, std::string(cephcsi::name(policy))}})->on_damage == policy);
  for (const char* wrong : {"repair", "readonly", "Refuse", "fsck "}) {
    const auto refused = read_parameters({{"corbd/on-damage", wrong}});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::invalid_argument);
    CHECK_THAT(refused.error().text, ContainsSubstring("fsck, refuse or read-only"));
  }
}

TEST_CASE("an unknown mounter in mapOptions is refused by its name") {
  for (const char* text : {"rbd:a", "crush_location=zone:z1", ":a", "nbd:a;fuse:b"}) {
    const auto options = split_map_options(text);
    REQUIRE_FALSE(options);
    CHECK(options.error().code == errc::invalid_argument);
    CHECK_THAT(options.error().text, ContainsSubstring("unknown mounter type"));
  }
}

TEST_CASE("options of rbd-nbd that have a meaning here are honoured", "[rule:6]") {
  const auto options = parse_nbd_options(
      "try-netlink, "
      "exclusive,notrim,read-only,reattach-timeout=600,io-timeout=0,rbd-op-threads=2,debug_rbd=20,rbd_cache=false");
  REQUIRE(options);
  CHECK(options->read_only);
  CHECK_FALSE(options->serving.trim);
  CHECK(options->serving.dead_conn_timeout_s == 600);
  CHECK((options->serving.config == std::map<std::string, std::string>{{"rbd_op_threads", "2"}, {"debug_rbd", "20"}}));
  CHECK(options->ignored.empty());
}

TEST_CASE("an io-timeout that makes rbd-nbd's device look like corbd's is noted") {
  CHECK(parse_nbd_options("io-timeout=1")->serving.same_timeout);
  CHECK_FALSE(parse_nbd_options("io-timeout=2")->serving.same_timeout);
}

TEST_CASE("empty mapOptions change no setting") {
  for (const char* text : {"", ",", " , "}) {
    const auto options = parse_nbd_options(text);
    REQUIRE(options);
    CHECK((*options == cephcsi::NbdOptions{}));
  }
}

TEST_CASE("an option that acknowledges writes before they are stored is refused, whatever its spelling", "[rule:1]") {
  for (const char* text :
       {"rbd-cache=true", "rbd_cache=1", "rbd-cache", "rbd_persistent_cache_mode=ssd", "rbd-rwl-enabled=true",
        "rbd-plugins=pwl_cache", "rbd_pwl_mode=rwl", "notrim,rbd_cache=yes"}) {
    const auto options = parse_nbd_options(text);
    REQUIRE_FALSE(options);
    CHECK(options.error().code == errc::invalid_argument);
    CHECK_THAT(options.error().text, ContainsSubstring("before they are stored"));
  }
}

TEST_CASE("an option by which rbd-nbd would cache writes before the first flush is kept") {
  for (const char* text : {"rbd_cache_writethrough_until_flush=false", "rbd-cache-writethrough-until-flush=0"}) {
    const auto options = parse_nbd_options(text);
    REQUIRE(options);
    CHECK(options->ignored.empty());
    CHECK(options->serving.config.at("rbd_cache_writethrough_until_flush") == "false");
  }
}

TEST_CASE("options without effect are named, but not their values") {
  struct Row {
    std::string text, named;
  };
  const auto row = GENERATE_COPY(values<Row>({
      {"io-timeout=330", "io-timeout"},
      {"reattach-timeout=0", "reattach-timeout"},
      {"rbd-cache-size=4096", "rbd-cache-size"},
      {"rbd-cache-writethrough-until-flush=true", "rbd-cache-writethrough-until-flush"},
      {"rbd_non_blocking_aio=false", "rbd-non-blocking-aio"},
      {"rbd-blocklist-on-break-lock=false", "rbd-blocklist-on-break-lock"},
      {"quiesce-hook=/bin/hook", "'quiesce-hook'"},
      {"cookie=canary", "'cookie'"},
      {"key=canary", "'key'"},
      {"rados-osd-op-timeout=30", "'rados-osd-op-timeout'"},
      {std::string("a\nb"), "'a?b'"},
  }));
  const auto options = parse_nbd_options(row.text);
  REQUIRE(options);
  REQUIRE(options->ignored.size() == 1);
  CHECK_THAT(options->ignored.front(), ContainsSubstring(row.named) && !ContainsSubstring("canary"));
  CHECK((options->serving == cephcsi::Serving{}));
}

TEST_CASE("a volume says whether its snapshots freeze it, or leaves that to the agent") {
  CHECK(parse_nbd_options("quiesce")->serving.quiesce == true);
  CHECK(parse_nbd_options("quiesce=1,notrim")->serving.quiesce == true);
  CHECK(parse_nbd_options("quiesce=false")->serving.quiesce == false);
  CHECK(parse_nbd_options("notrim")->serving.quiesce == std::nullopt);
}

TEST_CASE("an impossible value is refused with its option") {
  for (const std::string text :
       {"reattach-timeout=", "reattach-timeout=-1", "reattach-timeout=1h", "reattach-timeout=99999999999",
        "io-timeout=x", "reattach-timeout", "quiesce=", "quiesce=hook", "rbd-op-threads=", "rbd_op_threads=\x01"}) {
    const auto options = parse_nbd_options(text);
    REQUIRE_FALSE(options);
    CHECK(options.error().code == errc::invalid_argument);
    CHECK_THAT(options.error().text, ContainsSubstring(text.substr(4, 2)));
  }
}

TEST_CASE("a device or its files are encrypted, and a type of encryption that ceph-csi does not know is refused") {
  const auto code_of = [](const std::string& type) {
    return read_parameters({{"encrypted", "true"}, {"encryptionType", type}}).error().code;
  };
  CHECK(code_of("") == errc::invalid_argument);
  CHECK(code_of("Block") == errc::invalid_argument);
  CHECK(read_parameters({{"encrypted", "true"}, {"encryptionType", "block"}})->encryption_type == "block");
  CHECK(read_parameters({{"encrypted", "true"}})->encryption_type == "block");
  CHECK(read_parameters({{"encrypted", "true"}, {"encryptionType", "file"}})->encryption_type == "file");
  CHECK(read_parameters({{"encrypted", "false"}, {"encryptionType", "file"}})->kms_id.empty());
}

TEST_CASE("a StorageClass tells how its volumes are encrypted") {
  const auto plain = read_parameters({{"encrypted", "true"}, {"encryptionCipher", ""}});
  REQUIRE(plain);
  CHECK((plain->luks == cephcsi::LuksOptions{}));
  const auto parameters = read_parameters({{"encrypted", "true"},
                                           {"encryptionCipher", "serpent-xts-random"},
                                           {"encryptionKeySize", "256"},
                                           {"encryptionSectorSize", "4096"},
                                           {"integrityMode", "hmac-sha512"}});
  REQUIRE(parameters);
  CHECK((parameters->luks == cephcsi::LuksOptions{"serpent-xts-random", 256, "hmac-sha512", 4096, ""}));
}

TEST_CASE("an option of encryption that is not allowed refuses nothing yet, and its refusal lists what is allowed") {
  struct Row {
    std::string key, value, allowed;
  };
  const auto row = GENERATE_COPY(values<Row>({
      {"encryptionCipher", "aes-cbc-essiv:sha256",
       "aes-xts-plain64, serpent-xts-plain64, aes-xts-random, serpent-xts-random"},
      {"encryptionCipher", "aes-xts-random", "integrityMode: use one of hmac-sha256, hmac-sha512"},
      {"encryptionKeySize", "128", "256, 512"},
      {"encryptionKeySize", "many", "256, 512"},
      {"encryptionSectorSize", "8192", "512, 1024, 2048, 4096"},
      {"integrityMode", "aead", "hmac-sha256, hmac-sha512"},
  }));
  const auto parameters = read_parameters({{"encrypted", "true"}, {row.key, row.value}});
  REQUIRE(parameters);
  CHECK_THAT(parameters->luks.refused,
             ContainsSubstring(row.key) && ContainsSubstring(row.value) && ContainsSubstring(row.allowed));
  CHECK(read_parameters({{"encrypted", "false"}, {row.key, row.value}})->luks.refused.empty());
}

TEST_CASE(
    "encryptionDiscard lets discards through only if it is true, and is refused if it is neither true nor false") {
  const auto discards = [](const std::string& value) {
    return read_parameters({{"encrypted", "true"}, {"encryptionDiscard", value}});
  };
  CHECK_FALSE(read_parameters({{"encrypted", "true"}})->luks.discard);
  CHECK(discards("true")->luks.discard);
  CHECK_FALSE(discards("false")->luks.discard);
  for (const char* other : {"", "yes", "1", "True"}) {
    const auto refused = discards(other);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::invalid_argument);
    CHECK_THAT(refused.error().text, ContainsSubstring("encryptionDiscard") && ContainsSubstring("true or false"));
  }
  CHECK_FALSE(read_parameters({{"encryptionDiscard", "yes"}}));
  CHECK_FALSE(read_parameters({{"encryptionDiscard", "true"}})->luks.discard);
  CHECK_FALSE(read_parameters({{"encrypted", "true"}, {"encryptionType", "file"}, {"encryptionDiscard", "true"}})
                  ->luks.discard);
}

TEST_CASE("encryptionDiscard and integrityMode exclude each other") {
  const auto refused =
      read_parameters({{"encrypted", "true"}, {"encryptionDiscard", "true"}, {"integrityMode", "hmac-sha256"}});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::invalid_argument);
  CHECK_THAT(refused.error().text, ContainsSubstring("encryptionDiscard") && ContainsSubstring("integrityMode"));
  CHECK(read_parameters({{"encrypted", "true"}, {"encryptionDiscard", "false"}, {"integrityMode", "hmac-sha256"}}));
}

TEST_CASE("a StorageClass tells how its volumes are served") {
  const auto parameters = read_parameters({{"mounter", "rbd-nbd"},
                                           {"mapOptions", "krbd:lock_on_read;nbd:notrim,foo"},
                                           {"unmapOptions", "krbd:force;nbd:force"},
                                           {"encrypted", "true"},
                                           {"cephLogDir", "/var/log/x"},
                                           {"cephLogStrategy", "preserve"}});
  REQUIRE(parameters);
  CHECK_FALSE(parameters->is_static);
  CHECK(parameters->kms_id == "default");
  CHECK_FALSE(parameters->serving.trim);
  std::string ignored;
  for (const auto& sentence : parameters->ignored) ignored += sentence + "; ";
  CHECK_THAT(ignored, ContainsSubstring("mapOptions: 'foo'") && ContainsSubstring("unmapOptions") &&
                          ContainsSubstring("cephLogDir") && ContainsSubstring("cephLogStrategy") &&
                          !ContainsSubstring("lock_on_read"));
}

TEST_CASE("attributes without serving options leave the serving as it is") {
  const auto parameters = read_parameters(
      {{"pool", "p"}, {"clusterID", "c"}, {"csi.storage.k8s.io/pv/name", "x"}, {"thickProvision", "true"}});
  REQUIRE(parameters);
  cephcsi::Parameters nothing;
  nothing.stash.log_dir = "/var/log/ceph";
  nothing.stash.log_strategy = "remove";
  CHECK((*parameters == nothing));
}

TEST_CASE("parameters say of every volume whether the other client would make it read-only") {
  using cephcsi::Mounter;
  const auto otherwise = [](const cephcsi::Attributes& attributes, Mounter unnamed) {
    return read_parameters(attributes, {unnamed}).value().read_only_otherwise;
  };
  CHECK(otherwise({{"mapOptions", "krbd:ro"}}, Mounter::nbd));
  CHECK_FALSE(otherwise({{"mapOptions", "krbd:ro"}}, Mounter::krbd));
  CHECK(otherwise({{"mapOptions", "nbd:read-only"}}, Mounter::krbd));
  CHECK_FALSE(otherwise({{"mapOptions", "krbd:ro"}, {"mounter", "rbd"}}, Mounter::nbd));
  CHECK(otherwise({{"mapOptions", "krbd:ro"}, {"mounter", "rbd-nbd"}}, Mounter::nbd));
}

TEST_CASE("a client that replaces the volume's own gets the options that the volume has for it") {
  using cephcsi::Mounter;
  const cephcsi::Attributes attributes{{"mounter", "rbd"}, {"mapOptions", "krbd:lock_on_read;nbd:notrim"}};
  const auto nbd = read_parameters(attributes, {.instead = Mounter::nbd}).value();
  CHECK(nbd.mounter == Mounter::nbd);
  CHECK_FALSE(nbd.serving.trim);
  CHECK(nbd.kernel.map.empty());
  CHECK(read_parameters({{"mounter", "rbd-nbd"}}, {.instead = Mounter::krbd}).value().mounter == Mounter::krbd);
  CHECK(read_parameters({{"tryOtherMounters", "true"}}, {.instead = Mounter::krbd}).value().mounter ==
        Mounter::krbd_if_able);
  CHECK_FALSE(read_parameters({{"mounter", "fuse"}}, {.instead = Mounter::krbd}));
}

TEST_CASE("a volume that names no mounter is the default one's, with the options that it has for that one",
          "[failure:132]") {
  using cephcsi::Mounter;
  const auto of = [](cephcsi::Attributes attributes, Mounter unnamed) {
    return read_parameters(attributes, {unnamed}).value();
  };
  const std::string mounter = GENERATE("absent", "");
  cephcsi::Attributes plain{{"mapOptions", "krbd:queue_depth=64;nbd:notrim"}};
  if (mounter.empty()) plain["mounter"] = "";
  CHECK(of(plain, Mounter::nbd).mounter == Mounter::nbd);
  CHECK_FALSE(of(plain, Mounter::nbd).serving.trim);
  CHECK(of(plain, Mounter::krbd).mounter == Mounter::krbd);
  CHECK(of(plain, Mounter::krbd).kernel.map == "queue_depth=64");
  plain["tryOtherMounters"] = "true";
  CHECK(of(plain, Mounter::krbd).mounter == Mounter::krbd_if_able);
  CHECK(of(plain, Mounter::nbd).mounter == Mounter::nbd);
  CHECK(of({{"mounter", "rbd-nbd"}}, Mounter::krbd).mounter == Mounter::nbd);
  CHECK(of({{"mounter", "rbd"}}, Mounter::nbd).mounter == Mounter::krbd);
}

TEST_CASE("mounter rbd means the kernel client, with tryOtherMounters only if that is able") {
  using cephcsi::Mounter;
  CHECK(read_parameters({{"mounter", "rbd"}})->mounter == Mounter::krbd);
  CHECK(read_parameters({{"mounter", "rbd"}, {"tryOtherMounters", "true"}})->mounter == Mounter::krbd_if_able);
  CHECK(read_parameters({{"mounter", "rbd-nbd"}})->mounter == Mounter::nbd);
  CHECK(read_parameters({{"mounter", "rbd-nbd"}, {"tryOtherMounters", "true"}})->mounter == Mounter::nbd);
  CHECK(read_parameters({})->mounter == Mounter::nbd);
  const auto unknown = read_parameters({{"mounter", "fuse"}});
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().code == errc::invalid_argument);
  CHECK_THAT(unknown.error().text, ContainsSubstring("rbd-nbd") && ContainsSubstring("use rbd-nbd, or rbd"));
}

TEST_CASE("the kernel gets its own options unchanged, and none of rbd-nbd's") {
  const auto parameters = read_parameters({{"mounter", "rbd"},
                                           {"mapOptions", "krbd:noudev, lock_on_read,queue_depth=64;nbd:notrim,foo"},
                                           {"unmapOptions", "krbd:force;nbd:x"}});
  REQUIRE(parameters);
  CHECK(parameters->kernel.map == "lock_on_read,queue_depth=64");
  CHECK(parameters->kernel.unmap == "force");
  CHECK(parameters->serving.trim);
  CHECK(parameters->ignored.empty());
  CHECK(read_parameters({{"mounter", "rbd-nbd"}, {"mapOptions", "krbd:lock_on_read"}})->kernel ==
        cephcsi::KernelOptions{});
}

TEST_CASE("a kernel's volume is read-only when its options say so last") {
  CHECK(read_parameters({{"mounter", "rbd"}, {"mapOptions", "ro"}})->read_only);
  CHECK(read_parameters({{"mounter", "rbd"}, {"mapOptions", "krbd:read_only"}})->read_only);
  CHECK_FALSE(read_parameters({{"mounter", "rbd"}, {"mapOptions", "ro,rw"}})->read_only);
  CHECK_FALSE(read_parameters({{"mounter", "rbd-nbd"}, {"mapOptions", "krbd:ro"}})->read_only);
}

TEST_CASE("options of the kernel that the agent gives itself, or that would end the line, are refused") {
  for (const std::string text :
       {"name=admin", "secret=canary", "key=x", "_pool_ns=other", "a b", "a\tb", "a\nb", "\x01", "\xff"}) {
    const auto refused = cephcsi::parse_kernel_options(text);
    CAPTURE(text);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::invalid_argument);
    CHECK_THAT(refused.error().text, !ContainsSubstring("canary"));
  }
}

TEST_CASE("imageFeatures of a static volume are checked, those of a dynamic one are as they are") {
  struct Row {
    std::string features, wrong;
  };
  const auto row = GENERATE_COPY(values<Row>({
      {"", ""},
      {"layering", ""},
      {"layering,exclusive-lock,object-map,fast-diff,deep-flatten", ""},
      {"journaling,exclusive-lock", ""},
      {"layring", "invalid feature layring"},
      {"object-map", "feature object-map requires exclusive-lock"},
      {"exclusive-lock,fast-diff", "feature fast-diff requires object-map"},
  }));
  const auto parameters = read_parameters({{"staticVolume", "true"}, {"imageFeatures", row.features}});
  CHECK(parameters.has_value() == row.wrong.empty());
  if (!parameters) CHECK_THAT(parameters.error().text, ContainsSubstring(row.wrong));
  CHECK(read_parameters({{"imageFeatures", row.features}}));
}

TEST_CASE("debug output goes to a file in cephLogDir, whose path is checked") {
  const auto parameters = read_parameters({{"mapOptions", "nbd:debug-rbd=20"}, {"cephLogDir", "/var/log/ceph-x"}});
  REQUIRE(parameters);
  CHECK(parameters->serving.config.at("log_file") == "/var/log/ceph-x/corbd.$pid.$cctid.log");
  CHECK(parameters->ignored.empty());
  CHECK(read_parameters({{"mapOptions", "nbd:debug-rbd=20"}})
            ->serving.config.at("log_file")
            .starts_with("/var/log/ceph/"));
  for (const std::string dir : {"var/log", "/var/../etc", "/var/..", "/a\nb", "/a$b"}) {
    const auto refused = read_parameters({{"mapOptions", "nbd:debug-rbd=20"}, {"cephLogDir", dir}});
    REQUIRE_FALSE(refused);
    CHECK_THAT(refused.error().text, ContainsSubstring("cephLogDir"));
  }
}

TEST_CASE("no debug output goes outside of /var/log, wherever cephLogDir is") {
  for (const std::string dir : {"/etc/cron.d", "/var/logs", "/var", "/run/corbd"}) {
    const auto parameters = read_parameters({{"mapOptions", "nbd:debug-rbd=20"}, {"cephLogDir", dir}});
    REQUIRE(parameters);
    CHECK(parameters->serving.config.at("log_file").starts_with("/var/log/ceph/"));
    REQUIRE(parameters->ignored.size() == 1);
    CHECK_THAT(parameters->ignored.front(), ContainsSubstring("cephLogDir"));
  }
}

TEST_CASE("only values that Go's ParseBool accepts as true are true") {
  for (const char* yes : {"1", "t", "T", "true", "TRUE", "True"}) CHECK(cephcsi::go_true(yes));
  for (const char* no : {"yes", "0", "", "tRUE", "true "}) CHECK_FALSE(cephcsi::go_true(no));
}
