"""Verifies the message on standard input with opendkim-testmsg, which asks the system's name server for the key.

The arguments are the domain name of the key and its TXT record. Runs in a network namespace, in which this program is
the name server, and in a mount namespace, in which /etc/resolv.conf names it.
"""

import fcntl
import socket
import struct
import subprocess
import sys
import tempfile
import threading

NAME, RECORD = sys.argv[1], sys.argv[2].encode()
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


def answer(query):
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode())
        at += 1 + query[at]
    question = query[12 : at + 5]
    is_key = ".".join(labels).lower() == NAME and query[at + 1 : at + 3] == b"\0\x10"
    head = query[:2] + struct.pack("!5H", 0x8580 if is_key else 0x8583, 1, is_key, 0, 0)
    if not is_key:
        return head + question
    texts = [RECORD[start : start + 255] for start in range(0, len(RECORD), 255)]
    data = b"".join(bytes([len(text)]) + text for text in texts)
    return head + question + b"\xc0\x0c" + struct.pack("!HHIH", 16, 1, 60, len(data)) + data


def serve(server):
    while True:
        query, client = server.recvfrom(4096)
        server.sendto(answer(query), client)


server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(server, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))
server.bind(("127.0.0.1", 53))
threading.Thread(target=serve, args=(server,), daemon=True).start()
with tempfile.NamedTemporaryFile("w", suffix=".conf") as resolver:
    resolver.write("nameserver 127.0.0.1\n")
    resolver.flush()
    subprocess.run(["mount", "--bind", resolver.name, "/etc/resolv.conf"], check=True)
sys.exit(subprocess.run(["opendkim-testmsg"], stdin=sys.stdin).returncode)
