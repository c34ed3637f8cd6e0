"""Schemathesis hooks: rules of the API that the OpenAPI document does not express."""

import gzip
import io
import re
import tarfile

import schemathesis
from hypothesis import strategies
from schemathesis.openapi.checks import RejectedPositiveData

# The rules that JSON Schema cannot express, by error code: a request that matches its schema may still break them.
BY_CODE = {
    "confirm_mismatch": "the body must repeat the name in the path",
    "idempotency_mismatch": "the key was used with another body",
    "invalid_provider": "an empty client id or secret has its own code",
    "invalid_bundle": "the content of a bundle is restricted (docs/hostile-bundles.md)",
    "reserved_name": "some names of secrets are reserved",
    "registrar_rejected": "the registry decides about names, contacts and periods",
    "precondition_failed": "If-Match names another serial of the zone",
}
# The same at the endpoints below /oauth: which parameters are required depends on the grant type and on the client, and
# codes and tokens are random.
OAUTH_ERRORS = {"invalid_request", "invalid_client", "invalid_grant", "invalid_scope", "invalid_target"}
# Postgres text cannot contain U+0000.
NUL = "must not contain U+0000"
# The same by operation and by the field in `details`: a path in `fields`, or another key of `details`.
BY_FIELD = [
    (r".*", r"cursor", "a cursor must come from a page of the same list"),
    (r"ai\.set_auto_topup", r"(amount|threshold)MicroCents", "required if enabled, and the threshold is below the amount"),
    (r"access\.set", r"password", "required if the project has no password yet"),
    (r"billing\.(check_out|open_portal)|ai\.check_out_credit", r"returnTo", "an address of this installation"),
    (r"ai\.check_out_credit", r"microCents", "an amount of the catalog of this installation"),
    (r"codehost\.callback", r"", "the state must come from a sign-in that this browser started"),
    (r"codehost\.start", r"redirect", "the deployment must allow the URL"),
    (r"credentials\.key_add", r"key", "a public key of a supported type and length"),
    (r"credentials\.token_create", r"expiresAt", "must be in the future"),
    (r"credentials\.token_create", r"restrict\.(org|(projects|zones)(\[\d+\])?)", "an organization of the caller, and existing projects and zones"),
    (r"dns\.create|hostnames\.add|domains\.(purchase|import)", r"name", "a valid internationalized name (RFC 5891)"),
    (r"hostnames\.hsts_set", r"preload", "requires includeSubDomains and a maxAge of a year"),
    (r"domains\.purchase", r"contact\.country", "an assigned country code"),
    (r"domains\.check", r"names\[\d+\]", "valid internationalized names (RFC 5891)"),
    (r"dns\.put", r"name", "a valid internationalized name (RFC 5891)"),
    (r"dns\.(put|patch)", r"records.*|items", "records in the presentation format of their type (RFC 1035)"),
    (r"dns\.import", r"lines", "a zone file (RFC 1035)"),
    (r"repos\.(tree|blob|commits)", r"ref", "a name that git accepts for a branch"),
    (r"repos\.(create|update)", r"name|defaultBranch|deployBranch", "names that git accepts, and no suffix .git"),
    (r"oauth\.authorize", r"client_id|redirect_uri", "a registered client and one of its redirect URIs"),
    (r"orgs\.create", r"slug", "some slugs are reserved, and those with the prefix xn-- (RFC 5890)"),
    (r"projects\.(create|rename)", r"name", "names with the prefix xn-- are reserved (RFC 5890)"),
    (r"secrets\.(set|change)", r"value|secrets\..*", "the size of a value is limited in bytes"),
    (r"dns\.report", r"ds\[\d+\]\.(algorithm|digest)", "the length of a digest depends on its type; algorithm 0 is reserved"),
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
    """Removes the `default` responses, which allow any status. They document errors before routing. An operation must
    document its own statuses."""
    for methods in raw_schema["paths"].values():
        for operation in methods.values():
            del operation["responses"]["default"]


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Keeps all failures except the expected rejections above."""
    if not isinstance(failure, RejectedPositiveData):
        return True
    # The sender of a webhook signs its bytes. The error has no body.
    if context.operation.path.startswith("/v1/hooks/"):
        return False
    return not is_expected(context.operation, response.json())


def is_expected(operation, error):
    if "error" in error:
        return error["error"] in OAUTH_ERRORS | {"unauthorized_client", "unsupported_grant_type"}
    details = error["details"] or {}
    field_errors = [field for field in details.get("fields", []) if field["message"] != NUL]
    fields = {field["path"] for field in field_errors} or set(details) - {"fields"} or ({""} if not details else set())
    name = operation.definition.raw["operationId"]
    rules = [field for pattern, field, _ in BY_FIELD if re.fullmatch(pattern, name)]
    by_field = error["code"] == "bad_request" and all(any(re.fullmatch(rule, it) for rule in rules) for it in fields)
    return error["code"] in BY_CODE or by_field
