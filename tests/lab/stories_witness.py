"""Programs that are not ours check what they wrote before the agent was killed and replaced."""
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading

from checks import Failed, Skip, check, say, wait_for
from machine import MIB
from stories_handover import hand_over

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench"))
from pgbench import Server  # noqa: E402


def disturb(agent, volumes, flows, rounds=2):
    """Each round kills the agent, and hands over. flows() returns once the witness has gone on."""
    flows()
    for _ in range(rounds):
        agent.kill()
        agent.start()
        for volume in volumes:
            agent.wait_event("device.reconnected", 60, volume=volume.id)
        flows()
        hand_over(agent, volumes)
        flows()


def sectors_written(volume):
    with open("/sys/block/nbd%d/stat" % volume.device) as file:
        return int(file.read().split()[6])


# [failure:1][failure:150]
def story_fio_verifies(lab):
    """fio finds each block that it wrote to a raw device over two kills and two handovers, by the state that it saved"""
    if shutil.which("fio") is None:
        raise Skip("fio is not installed")
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=1024 * MIB), block=True)
    volume.stage()
    argv = ["fio", "--name=witness", "--filename=" + volume.staged_path, "--size=1G", "--rw=randwrite", "--bs=4k", "--direct=1", "--ioengine=libaio",
            "--iodepth=8", "--rate_iops=400", "--verify=crc32c", "--verify_fatal=1", "--randseed=7", "--aux-path=" + lab.dir]
    # So many blocks take ten minutes at that rate, and SIGINT ends them with a saved state.
    wrote = lab.start([*argv, "--do_verify=0", "--verify_state_save=1"], log=os.path.join(lab.out, "fio.log"), cwd=lab.dir)

    def flows():
        goal = sectors_written(volume) + 200 * 8
        wait_for("fio's writes", lambda: sectors_written(volume) >= goal or wrote.poll() is not None, 90)
        check(wrote.poll() is None, "fio ended with %s" % wrote.returncode)

    disturb(agent, [volume], flows)
    wrote.send_signal(signal.SIGINT)
    # 128: it was told to end.
    check(wrote.wait(60) in (0, 128), "fio ended with %s" % wrote.returncode)
    done = subprocess.run([*argv, "--verify_state_load=1", "--verify_only", "--output-format=json"], cwd=lab.dir, capture_output=True, text=True, timeout=300)
    check(done.returncode == 0 and "verify:" not in done.stderr, "fio does not find what it wrote: %s" % (done.stderr or done.stdout)[-500:])
    verified = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]["read"]["total_ios"]
    say("fio verified %d blocks" % verified)
    check(verified >= 1000, "fio verified only %d blocks" % verified)
    volume.unstage(patience=30)
    volume.expect_gone()


class Ledger:
    """A SQLite database, in which each transaction moves money between two accounts and notes that it did. A commit is noted outside the volume, too."""

    def __init__(self, path, journal_mode):
        self.path, self.committed, self.failed, self.ends = path, 0, None, False
        database = self.open()
        database.executescript("PRAGMA journal_mode=%s; CREATE TABLE account(id INTEGER PRIMARY KEY, money INTEGER); CREATE TABLE moved(number INTEGER PRIMARY KEY);"
                               "INSERT INTO account VALUES(1, 1000000),(2, 1000000);" % journal_mode)
        # Its cache of statements refers to it, so that it stays open until Python looks for such cycles.
        database.close()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def open(self):
        database = sqlite3.connect(self.path, isolation_level=None, timeout=60)
        database.execute("PRAGMA synchronous=FULL")
        return database

    def work(self):
        try:
            database = self.open()
            while not self.ends:
                number = self.committed + 1
                database.execute("BEGIN IMMEDIATE")
                database.execute("UPDATE account SET money = money - ? WHERE id = 1", (number % 7,))
                database.execute("UPDATE account SET money = money + ? WHERE id = 2", (number % 7,))
                database.execute("INSERT INTO moved VALUES(?)", (number,))
                database.execute("COMMIT")
                self.committed = number
            database.close()
        except Exception as error:
            self.failed = error

    def flows(self):
        goal = self.committed + 20
        wait_for("20 transactions more", lambda: self.committed >= goal or self.failed, 90)
        if self.failed:
            raise Failed("SQLite: %r" % self.failed)

    def end(self):
        self.ends = True
        self.thread.join(60)
        check(not self.thread.is_alive(), "a transaction does not end")
        check(self.failed is None, "SQLite: %r" % self.failed)

    def expect_whole(self):
        database = self.open()
        check(database.execute("PRAGMA integrity_check").fetchall() == [("ok",)], "SQLite's integrity check of %s" % self.path)
        check(database.execute("SELECT sum(money) FROM account").fetchone() == (2000000,), "money is lost in %s" % self.path)
        check(database.execute("SELECT count(*), max(number) FROM moved").fetchone() == (self.committed, self.committed), "a commit is lost in %s" % self.path)
        database.close()


# [failure:1][failure:150]
def story_sqlite_survives(lab):
    """SQLite's databases on ext4 and xfs, with a rollback journal and with a write-ahead log, have each commit and pass its integrity check after two kills and two handovers"""
    agent = lab.agent().start()
    volumes = [agent.volume(lab.image("ext4", size=128 * MIB)), agent.volume(lab.image("xfs", size=512 * MIB), fstype="xfs")]
    for volume in volumes:
        volume.stage()
    ledgers = [Ledger(os.path.join(volume.staged_path, mode), mode) for volume in volumes for mode in ("delete", "wal")]

    def flows():
        for ledger in ledgers:
            ledger.flows()

    disturb(agent, volumes, flows)
    for ledger in ledgers:
        ledger.end()
    # What is in no cache of this kernel comes from the image.
    for volume in volumes:
        volume.unstage(patience=30)
        volume.stage(patience=30)
    for ledger in ledgers:
        ledger.expect_whole()
    say("%s commits" % ", ".join("%d" % ledger.committed for ledger in ledgers))
    for volume in volumes:
        volume.unstage(patience=30)
    volumes[0].expect_gone()


# [failure:1]
def story_postgres_survives(lab):
    """pg_amcheck and the checksums find nothing in PostgreSQL's files after two kills and two handovers of the agent and an immediate end of the server, and no commit is lost"""
    agent = lab.agent().start()
    volume = agent.volume(lab.image("a", size=512 * MIB))
    volume.stage()
    lab.admin("postgres", os.environ["CORBD_OUT"], timeout=300)
    postgres = Server(os.path.join(os.environ["CORBD_OUT"], "postgres"), volume.staged_path)
    try:
        postgres.start()
        load = lab.start(["env", *("%s=%s" % (name, postgres.env[name]) for name in ("LC_ALL", "LD_LIBRARY_PATH")),
                          *postgres.argv("pgbench", "-h", postgres.sockets, "-U", "bench", "-c", "4", "-j", "2", "-T", "600", "postgres")],
                         log=os.path.join(lab.out, "pgbench.log"), cwd="/")

        def ask(question):
            return postgres.client("psql", "-Atc", question).strip()

        def committed():
            return int(ask("SELECT count(*) FROM pgbench_history"))

        def flows():
            goal = committed() + 30
            wait_for("30 transactions more", lambda: committed() >= goal or load.poll() is not None, 90, 0.3)
            check(load.poll() is None, "pgbench ended with %s" % load.returncode)

        disturb(agent, [volume], flows)
        before = committed()
        postgres.end("immediate")
        load.kill()
        volume.unstage(patience=30)
        volume.stage(patience=30)
        postgres.serve()
        check(committed() >= before, "%d commits, and %d before the server ended" % (committed(), before))
        ask("CREATE EXTENSION amcheck")
        postgres.client("pg_amcheck", "--heapallindexed", "--parent-check")
        check(ask("SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)") == "t", "the balances are not what the history says")
        postgres.end("fast")
        postgres.run("pg_checksums", "--check", "-D", postgres.folder)
    finally:
        postgres.end_all()
    say("%d commits" % before)
    volume.unstage(patience=30)
    volume.expect_gone()


story_postgres_survives.limit = 400
