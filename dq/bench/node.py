"""The embedded Valkey of a bench, asked in its plainest protocol: a line there, a reply back."""

from __future__ import annotations

import socket
from pathlib import Path

from dq.bench.errors import BenchFailed
from dq.queue.keys import bucket_keys
from dq.workers.valkey import short_path

_TIMEOUT_S = 30.0


class Node:
    """Valkey on the data folder `data_dir`, with so many buckets."""

    def __init__(self, data_dir: Path, buckets: int) -> None:
        self._jobs = [f"HLEN {bucket_keys(number)[1]}" for number in range(buckets)]
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_TIMEOUT_S)
        self._socket.connect(str(short_path(data_dir / "valkey") / "valkey.sock"))
        self._replies = self._socket.makefile("rb")

    def close(self) -> None:
        self._replies.close()
        self._socket.close()

    def jobs(self) -> int:
        """Unfinished jobs: delayed, ready and running."""
        return sum(int(self._ask(command)) for command in self._jobs)

    def used_memory(self) -> int:
        return int(self._info("memory")["used_memory"])

    def version(self) -> str:
        server = self._info("server")
        return server.get("valkey_version") or server["redis_version"]

    def _info(self, section: str) -> dict[str, str]:
        lines = self._ask(f"INFO {section}").splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def _ask(self, command: str) -> str:
        self._socket.sendall(f"{command}\r\n".encode())
        line = self._replies.readline().decode().strip()
        if line.startswith("$"):
            return self._replies.read(int(line[1:]) + 2).decode()
        if not line.startswith(":"):
            raise BenchFailed(f"Valkey answered {command!r} with {line!r}")
        return line[1:]
