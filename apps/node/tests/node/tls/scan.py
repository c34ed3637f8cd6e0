"""Connects to a TLS server as old, weak and wrong clients do. Prints the results as JSON."""

import json
import socket
import ssl
import sys
import warnings

warnings.simplefilter("ignore", DeprecationWarning)
ADDRESS, PORT, NAME, AUTHORITY = sys.argv[1:]
VERSIONS = [version for version in ssl.TLSVersion if ssl.TLSVersion.TLSv1 <= version <= ssl.TLSVersion.TLSv1_3]
# Everything that the local library implements, without its own minimum.
EVERY_CIPHER = "ALL:COMPLEMENTOFALL:@SECLEVEL=0"


def create_context(first=VERSIONS[0], last=VERSIONS[-1], ciphers=EVERY_CIPHER):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(AUTHORITY)
    context.minimum_version, context.maximum_version = first, last
    context.options &= ~ssl.OP_NO_COMPRESSION
    context.set_ciphers(ciphers)
    return context


def connect(context, name=NAME):
    """Returns the parameters of the connection, or the reason of the failure."""
    context.check_hostname = name is not None
    try:
        with socket.create_connection((ADDRESS, int(PORT))) as plain:
            with context.wrap_socket(plain, server_hostname=name) as stream:
                cipher, version, _ = stream.cipher()
                return {
                    "version": stream.version(),
                    "cipher": cipher,
                    "compression": stream.compression(),
                    "protocol": stream.selected_alpn_protocol(),
                }
    except ssl.SSLError as error:
        # The library names only some alerts.
        return error.reason or str(error)


def connect_with_protocols(*protocols):
    context = create_context()
    context.set_alpn_protocols(protocols)
    return connect(context)


def accepts(cipher):
    tls12 = ssl.TLSVersion.TLSv1_2
    return isinstance(connect(create_context(tls12, tls12, f"{cipher}:@SECLEVEL=0")), dict)


offered = sorted({cipher["name"] for cipher in create_context().get_ciphers() if cipher["protocol"] != "TLSv1.3"})
print(json.dumps({
    "versions": {version.name: connect(create_context(version, version)) for version in VERSIONS},
    # The cipher suites of TLS 1.2 that were offered one by one, and those that the server accepted.
    "offered": offered,
    "accepted": [cipher for cipher in offered if accepts(cipher)],
    "both_protocols": connect_with_protocols("h2", "http/1.1"),
    "http_1_1": connect_with_protocols("http/1.1"),
    "other_protocol": connect_with_protocols("acme-tls/1"),
    "other_name": connect(create_context(), "other.localhost"),
    "no_name": connect(create_context(), None),
}))
