"""A real Redis Cluster for tests: three masters that share the slots, on free ports."""

from __future__ import annotations

import random
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

import redis

from tests.support import wait_until
from tests.valkey import Valkey

SLOTS = 16_384


class Cluster:
    """Starts when it is made."""

    def __init__(self, masters: int = 3) -> None:
        ports = _free_ports(2 * masters)
        self._ports, self._bus_ports = ports[:masters], ports[masters:]
        self.masters = [_master(self._ports[n], self._bus_ports[n]) for n in range(masters)]
        self.url = f"redis+cluster://127.0.0.1:{self._ports[0]}"
        try:
            for server in self.masters:
                server.start()
            self._meet()
        except BaseException:
            self.stop()
            raise

    def _meet(self) -> None:
        count, clients = len(self.masters), self._clients()
        for number, client in enumerate(clients):
            first, end = (SLOTS * n // count for n in (number, number + 1))
            client.execute_command("CLUSTER ADDSLOTSRANGE", first, end - 1)
            client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
        for port, bus_port in zip(self._ports[1:], self._bus_ports[1:], strict=True):
            clients[0].execute_command("CLUSTER MEET", "127.0.0.1", port, bus_port)
        self.wait_ready()

    def _clients(self) -> list[redis.Redis]:
        return [server.client() for server in self.masters]

    def wait_ready(self) -> None:
        """Until each of them knows the others and all slots are served."""
        wait_until(lambda: all(map(self._is_ready, self._clients())), 20, "cluster")

    def _is_ready(self, client: redis.Redis) -> bool:
        info = client.execute_command("CLUSTER INFO")
        text = info if isinstance(info, dict) else dict(_lines(info))
        return (text["cluster_state"], text["cluster_size"]) == ("ok", str(len(self.masters)))

    @contextmanager
    def moving(self, key: str) -> Iterator[Callable[[Sequence[str]], None]]:
        """A key's slot is on its way to another master; the function takes keys over. At the end
        of the block the slot is the other's."""
        clients = self._clients()
        ids = [client.execute_command("CLUSTER MYID") for client in clients]
        slot = clients[0].execute_command("CLUSTER KEYSLOT", key)
        here = next(n for n in range(len(ids)) if slot < SLOTS * (n + 1) // len(ids))
        there = (here + 1) % len(ids)
        clients[there].execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[here])
        clients[here].execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[there])

        def move(keys: Sequence[str]) -> None:
            words = ["127.0.0.1", self._ports[there], "", 0, 5_000, "KEYS", *keys]
            clients[here].execute_command("MIGRATE", *words)

        yield move
        for client in (clients[there], clients[here]):
            client.execute_command("CLUSTER SETSLOT", slot, "NODE", ids[there])

    def clear(self) -> None:
        for client in self._clients():
            client.flushall()

    def stop(self) -> None:
        for server in self.masters:
            server.stop()
            shutil.rmtree(server.folder)


def _lines(info: bytes) -> list[list[str]]:
    return [line.split(":") for line in info.decode().split()]


def _master(port: int, bus_port: int) -> Valkey:
    words = ["--port", str(port), "--cluster-port", str(bus_port), "--bind", "127.0.0.1"]
    words += ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"]
    return Valkey(Path(mkdtemp(prefix="dqc")), *words)


def _free_ports(count: int) -> list[int]:
    """Below those that the kernel gives to whoever connects: a master is started again on its."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                one.bind(("127.0.0.1", port))
                found += [port] if port not in found else []
    return found
