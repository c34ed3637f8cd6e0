"""Clones, pushes, fetches and deletes a branch with dulwich."""

import json
import os
import sys

from dulwich import porcelain
from dulwich.errors import GitProtocolError

given = json.loads(sys.argv[1])
url, folder = given["url"], given["folder"]
author = b"Ada <ada@example.org>"
quiet = {"errstream": open(os.devnull, "wb")}


def commit(repository, name, text):
    with open(os.path.join(repository.path, name), "w") as file:
        file.write(text)
    porcelain.add(repository, [os.path.join(repository.path, name)])
    return porcelain.commit(repository, message=f"Change {name}".encode(), author=author, committer=author)


first = porcelain.clone(url, os.path.join(folder, "first"), **quiet)
assert first.head().decode() == given["head"]
shallow = porcelain.clone(url, os.path.join(folder, "shallow"), depth=1, **quiet)
assert len(list(shallow.get_walker())) == 1

second = porcelain.clone(url, os.path.join(folder, "second"), **quiet)
pushed = commit(second, "dulwich", "1")
porcelain.push(second, "origin", "refs/heads/main", **quiet)
porcelain.push(second, "origin", "refs/heads/main:refs/heads/other", **quiet)
porcelain.fetch(first, "origin", **quiet)
assert first.refs[b"refs/remotes/origin/main"] == pushed

# The first clone does not have the commit of the second.
commit(first, "other", "2")
try:
    porcelain.push(first, "origin", "refs/heads/main", **quiet)
    raise AssertionError("a push that is not a fast-forward succeeded")
except porcelain.DivergedBranches:
    pass
forced = first.head()
porcelain.push(first, "origin", "+refs/heads/main", force=True, **quiet)
porcelain.push(first, "origin", ":refs/heads/other", **quiet)
refs = porcelain.ls_remote(url).refs
assert b"refs/heads/other" not in refs and refs[b"refs/heads/main"] == forced, refs

try:
    porcelain.push(first, given["readable"], "refs/heads/main:refs/heads/refused", **quiet)
    raise AssertionError("a push without the scope succeeded")
except GitProtocolError as error:
    assert "403" in str(error), error
print(json.dumps([pushed.decode(), forced.decode()]))
