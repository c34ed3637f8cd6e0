"""What schemathesis has to know beyond the document."""

import gzip
import io
import re
import tarfile

import schemathesis
from hypothesis import strategies
from schemathesis.openapi.checks import RejectedPositiveData

# What may be refused although its schema allows it: rules that no JSON Schema can tell. By the code of the refusal.
BY_CODE = {
    "confirm_mismatch": "the name that the path has is to be said again",
    "idempotency_mismatch": "the key came before, with another body",
    "invalid_bundle": "what a bundle may hold (docs/hostile-bundles.md)",
    "precondition_failed": "If-Match names another state of the zone",
}
# U+0000 is in no text: Postgres keeps none.
NUL = "must not contain U+0000"
# By operation, and by the fields that `details` names: the keys of its `fields`, or what it is called.
BY_FIELD = [
    (r".*", r"cursor", "a cursor is what a page of the same list handed out"),
    (r"access\.set", r"password", "needed where none was ever set"),
    (r"codehost\.callback", r"", "a state is what the start of this browser's sign-in gave out"),
    (r"codehost\.start", r"redirect", "under one of the addresses that the deployment allows"),
    (r"credentials\.key_add", r"key", "a public key of a type and a length that is taken"),
    (r"credentials\.token_create", r"expiresAt", "in the future"),
    (r"credentials\.token_create", r"restrict\.(org|(projects|zones)(\[\d+\])?)", "where the caller is a member, and what is there"),
    (r"dns\.create|hostnames\.add", r"name", "what IDNA takes for a name (RFC 5891)"),
    (r"dns\.put", r"name", "what IDNA takes for a name (RFC 5891)"),
    (r"dns\.(put|patch)", r"records.*|items", "records in the presentation format of their type (RFC 1035)"),
    (r"dns\.import", r"lines", "a zone file (RFC 1035)"),
    (r"dns\.report", r"ds\[\d+\]\.(algorithm|digest)", "a digest is as long as its type has it; algorithm 0 is none"),
]


def bundle(files):
    """A gzipped tar archive of these files."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(tar.getvalue(), mtime=0)


SITES = strategies.binary(max_size=64).map(lambda page: bundle({"svc.json": b"{}", "assets/index.html": page}))
NO_SITES = strategies.binary(max_size=64) | strategies.just(bundle({"../svc.json": b"{}"}))
schemathesis.openapi.media_type("application/gzip", SITES | NO_SITES)


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """Takes `default` away, which admits any status. What fails before a route is found is told of there, once for all;
    what a route itself answers, it has to announce."""
    for methods in raw_schema["paths"].values():
        for operation in methods.values():
            del operation["responses"]["default"]


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Keeps every failure but the refusals that are told of above."""
    return not isinstance(failure, RejectedPositiveData) or not is_told(context.operation, response.json())


def is_told(operation, refusal):
    details = refusal["details"] or {}
    faults = [fault for fault in details.get("fields", []) if fault["message"] != NUL]
    fields = {fault["path"] for fault in faults} or set(details) - {"fields"} or ({""} if not details else set())
    name = operation.definition.raw["operationId"]
    rules = [field for pattern, field, _ in BY_FIELD if re.fullmatch(pattern, name)]
    by_field = refusal["code"] == "bad_request" and all(any(re.fullmatch(rule, it) for rule in rules) for it in fields)
    return refusal["code"] in BY_CODE or by_field
