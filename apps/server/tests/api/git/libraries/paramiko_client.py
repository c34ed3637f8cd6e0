"""Runs commands over SSH with paramiko: those of git, and others, which the server refuses."""

import json
import sys

import paramiko

given = json.loads(sys.argv[1])
path = given["path"]
key = paramiko.Ed25519Key.from_private_key_file(given["key"])


def connect(**credentials):
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    client.connect(
        given["host"], given["port"], "git", allow_agent=False, look_for_keys=False, timeout=60, banner_timeout=60,
        auth_timeout=60, **credentials,
    )
    return client


for credentials in [{"password": given["token"]}, {"pkey": paramiko.ECDSAKey.generate()}]:
    try:
        connect(**credentials)
        raise SystemExit(f"{list(credentials)} authenticated")
    except paramiko.AuthenticationException:
        pass

client = connect(pkey=key)
transport = client.get_transport()


def run(command, input=b"", environment=None):
    """Returns the exit code, the output and the error output of a command."""
    channel = transport.open_session(timeout=60)
    channel.settimeout(60)
    for name, value in (environment or {}).items():
        channel.set_environment_variable(name, value)
    channel.exec_command(command)
    channel.sendall(input)
    channel.shutdown_write()
    output = channel.makefile("rb").read()
    error = channel.makefile_stderr("rb").read()
    return channel.recv_exit_status(), output, error


def packet(line):
    return f"{len(line) + 4:04x}{line}".encode()


# List the refs with protocol 0, and with the command of protocol 2.
code, output, _ = run(f"git-upload-pack '{path}'", b"0000")
assert code == 0 and given["head"].encode() in output, output
requested = packet("command=ls-refs\n") + b"0001" + packet("ref-prefix refs/heads/\n") + b"0000" + b"0000"
code, output, _ = run(f"git upload-pack '{path}'", requested, {"GIT_PROTOCOL": "version=2"})
assert code == 0 and b"version 2" in output and given["head"].encode() in output, output

for command, reason in [
    ("ls", b"this server runs git-upload-pack"),
    ("git-shell -c 'ls'", b"this server runs"),
    ("git --exec-path=. upload-pack x", b"this server runs"),
    ("git-upload-pack", b"this server runs"),
    (f"git-upload-pack '{path}'; touch x", b"not found"),
    (f"git-upload-pack '{path}' --strict", b"not found"),
    ("git-upload-pack '--upload-pack=touch'", b"not found"),
    ("git-upload-pack '/ada/site/other.git'", b"not found"),
    ("git-upload-pack '/ada/site/../site/app.git'", b"not found"),
    ("git-upload-pack '/etc/passwd'", b"not found"),
    ("git-upload-pack '~ada/site/app.git'", b"not found"),
    (f"git-upload-pack \"{path}\"", b"not found"),
    ("git-upload-pack '$(id)'", b"not found"),
    ("scp -f /etc/passwd", b"this server runs"),
    ("x" * 2000, b"this server runs"),
    (b"git-upload-pack '\xff'", b"this server runs"),
    (b"git-upload-pack 'a\0b'", b"not found"),
]:
    code, output, error = run(command)
    assert code == 128 and output == b"" and reason in error, (command, code, output, error)

# Other variables do not reach git, which would print a trace.
code, output, error = run(f"git-upload-pack '{path}'", b"0000", {"GIT_TRACE": "2", "GIT_TRACE_PACKET": "2"})
assert code == 0 and given["head"].encode() in output and error == b"", error
# The server offers neither subsystems nor forwarded ports.
channel = transport.open_session(timeout=60)
try:
    channel.invoke_subsystem("sftp")
    raise SystemExit("a subsystem was started")
except paramiko.SSHException:
    pass
try:
    transport.open_channel("direct-tcpip", ("127.0.0.1", 22), ("127.0.0.1", 1), timeout=60)
    raise SystemExit("a port was forwarded")
except paramiko.ChannelException:
    pass
channel = transport.open_session(timeout=60)
channel.settimeout(60)
channel.invoke_shell()
assert b"this server has no shell" in channel.makefile_stderr("rb").read()

# The connection still works.
code, output, _ = run(f"git-upload-pack '{path}'", b"0000")
assert code == 0 and given["head"].encode() in output
print("done")
