"""What is done to a running dq: each fault by its name, chosen and sized by a seed."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import redis

from tests.chaos.scene import Scene
from tests.support import wait_until

BUCKETS = 4
Strike = Callable[[Scene, random.Random], None]


@dataclass(frozen=True)
class Kind:
    """`is_ours`: a process with callbacks in flight dies, so these may be made again."""

    name: str
    strike: Strike
    is_ours: bool = False


def kill(name: str) -> Strike:
    """kill -9 for a process."""

    def strike(scene: Scene, rng: random.Random) -> None:
        scene.process(name).kill()

    return strike


def stop(name: str, for_s: float) -> Strike:
    """A process stands still for a while, as one that is swapped out."""

    def strike(scene: Scene, rng: random.Random) -> None:
        process = scene.process(name)
        process.send_signal(signal.SIGSTOP)
        time.sleep(for_s)
        process.send_signal(signal.SIGCONT)

    return strike


def kill_everything(scene: Scene, rng: random.Random) -> None:
    scene.kill_everything()
    scene.dq.start()


def delete_folder(scene: Scene, rng: random.Random) -> None:
    with scene.valkey_is_down() as folder:
        shutil.rmtree(folder)


def node(scene: Scene) -> redis.Redis:
    """A client of the embedded node."""
    path = scene.folder / "data" / "valkey" / "valkey.sock"
    return redis.Redis(unix_socket_path=str(path.resolve()))


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


def flush(scene: Scene, rng: random.Random) -> None:
    with node(scene) as client:
        wait_until(lambda: answers(client), 20, "valkey")
        client.flushall()


def delete_key(*names: str, topic: str = "t") -> Strike:
    """DEL of keys of the bucket where the topic lives, then `restore`, which audits it."""

    def strike(scene: Scene, rng: random.Random) -> None:
        bucket = crc32(topic.encode()) % BUCKETS
        with node(scene) as client:
            wait_until(lambda: answers(client), 20, "valkey")
            client.delete(*(f"{{dq{bucket}}}:{name}" for name in names))
        wait_until(lambda: is_restored(scene), 40, "an audit")

    return strike


def is_restored(scene: Scene) -> bool:
    try:
        return scene.dq.call("POST", "/v1/restore", {"overdue": True}, timeout_s=30).status == 200
    except OSError:
        return False


def append_only_file(folder: Path) -> Path | None:
    """The part of it that grows; None where an earlier fault has left nothing."""
    parts = (folder / "appendonlydir").glob("*.incr.aof")
    parts_with_data = [path for path in parts if path.stat().st_size]
    return max(parts_with_data, key=lambda path: path.stat().st_mtime, default=None)


def cut_file_short(scene: Scene, rng: random.Random) -> None:
    with scene.valkey_is_down() as folder:
        if (path := append_only_file(folder)) is None:
            return
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.truncate(size - rng.randint(1, max(1, size // 2)))


def flip_bytes(scene: Scene, rng: random.Random) -> None:
    with scene.valkey_is_down() as folder:
        if (path := append_only_file(folder)) is None:
            return
        with path.open("r+b") as file:
            file.seek(rng.randint(0, path.stat().st_size // 2))
            file.write(b"\xff" * 2000)


KINDS = [
    Kind("server killed", kill("dq-server-0")),
    Kind("timer killed", kill("dq-timer-0")),
    Kind("consumer killed", kill("dq-consumer-0"), is_ours=True),
    Kind("journal killed", kill("dq-journal")),
    Kind("redis-checker killed", kill("dq-redis-checker")),
    Kind("admin killed", kill("dq-admin")),
    Kind("everything killed", kill_everything, is_ours=True),
    Kind("Valkey killed", kill("dq-valkey")),
    Kind("Valkey stopped 3 s", stop("dq-valkey", 3.0)),
    Kind("consumer stopped 2 s", stop("dq-consumer-1", 2.0)),
    Kind("Valkey's folder deleted", delete_folder),
    Kind("FLUSHALL", flush),
    Kind("DEL of the jobs", delete_key("jobs")),
    Kind("DEL of the due set", delete_key("due")),
    Kind("DEL of the ready jobs", delete_key("ready", "turns1")),
    Kind("DEL of the holders", delete_key("holders")),
    Kind("append-only file cut short", cut_file_short),
    Kind("append-only file with flipped bytes", flip_bytes),
]
