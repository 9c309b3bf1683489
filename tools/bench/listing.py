"""How long partition_dataset takes over the listing of a bucket of many objects, and how much memory.

    python tools/bench/listing.py --objects 200000 1000000

The bucket is a server of this file on the loopback interface, in a process of its own, which makes up the pages of the listing.
No object is read: their names say that they are pictures. Prints one line for each number of objects.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

PAGE = 1000  # objects, as S3 gives them
_OBJECT = (
    "<Contents><Key>set/%09d.jpg</Key><LastModified>2026-10-21T07:28:00.000Z</LastModified>"
    "<ETag>&quot;%032x&quot;</ETag><Size>20000</Size></Contents>"
)


def page(query: dict[str, list[str]], count: int) -> bytes:
    """The page of the listing that a query asks for."""
    start = int(query.get("continuation-token", ["0"])[0])
    if "start-after" in query:
        start = int(query["start-after"][0].removeprefix("set/").removesuffix(".jpg")) + 1
    end = min(count, start + PAGE)
    token = f"<NextContinuationToken>{end}</NextContinuationToken>" if end < count else ""
    objects = "".join(_OBJECT % (number, number) for number in range(start, end))
    more = "true" if end < count else "false"
    return f"<ListBucketResult><IsTruncated>{more}</IsTruncated>{token}{objects}</ListBucketResult>".encode()


async def serve(count: int) -> None:
    """Answer requests for the listing, until this process is ended."""

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport, self.begun = transport, b""

        def data_received(self, data: bytes) -> None:
            self.begun += data
            while (end := self.begun.find(b"\r\n\r\n")) >= 0:
                asked = self.begun.split(b" ", 2)[1].decode()
                self.begun = self.begun[end + 4 :]
                body = page(parse_qs(urlsplit(asked).query), count)
                self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def measure(count: int, folder: Path) -> str:
    """The line about so many objects."""
    server = subprocess.Popen([sys.executable, __file__, "--serve", str(count)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        environment = {
            **os.environ, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.stdout.readline().strip()}", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none",
        }  # fmt: skip
        words = [
            "partition_dataset",
            "--data_dir",
            "s3://bucket/set",
            "--partitions",
            "8",
            "--output",
            str(folder / str(count)),
        ]
        began = time.perf_counter()
        done = subprocess.Popen([sys.executable, "-m", "bulkinfer", *words], env=environment, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(done.pid, 0)
        assert status == 0, status
        taken_s, used_s = time.perf_counter() - began, used.ru_utime + used.ru_stime
        return f"| {count:,} | {taken_s:.1f} | {used_s:.1f} | {used.ru_maxrss / 1000:.0f} |"
    finally:
        server.kill()
        server.wait()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, nargs="+", default=[200_000, 1_000_000])
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(given.serve))
        return
    print("| objects | seconds | processor seconds | peak memory, MB |", "|---|---|---|---|", sep="\n")
    with tempfile.TemporaryDirectory(prefix="listing-") as folder:
        for count in given.objects:
            print(measure(count, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
