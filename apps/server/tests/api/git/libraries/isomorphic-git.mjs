// Clones, pushes, fetches and deletes a branch with isomorphic-git.

import assert from "node:assert";
import fs from "node:fs";
import path from "node:path";
import git from "isomorphic-git";
import http from "isomorphic-git/http/node";

const given = JSON.parse(process.argv[2]);
const author = { name: "Ada", email: "ada@example.org" };
const onAuth = () => ({ username: "git", password: given.token });
const at = (name) => ({ fs, http, onAuth, dir: path.join(given.folder, name), remote: "origin" });

async function clone(name, options) {
  const repository = at(name);
  await git.clone({ ...repository, url: given.plainUrl, ...options });
  return repository;
}

async function commit(repository, name, text) {
  fs.writeFileSync(path.join(repository.dir, name), text);
  await git.add({ ...repository, filepath: name });
  return git.commit({ ...repository, message: `Change ${name}`, author });
}

const first = await clone("first", {});
assert.equal(await git.resolveRef({ ...first, ref: "HEAD" }), given.head);
const shallow = await clone("shallow", { depth: 1 });
assert.equal((await git.log(shallow)).length, 1);

const second = await clone("second", {});
const pushed = await commit(second, "isomorphic", "1");
assert.ok((await git.push({ ...second, ref: "main" })).ok);
assert.ok((await git.push({ ...second, ref: "main", remoteRef: "refs/heads/other" })).ok);
await git.fetch(first);
assert.equal(await git.resolveRef({ ...first, ref: "refs/remotes/origin/main" }), pushed);

// The first clone does not have the commit of the second.
const forced = await commit(first, "other", "2");
await assert.rejects(git.push({ ...first, ref: "main" }), { code: "PushRejectedError" });
assert.ok((await git.push({ ...first, ref: "main", force: true })).ok);
assert.ok((await git.push({ ...first, ref: "refs/heads/main", remoteRef: "refs/heads/other", delete: true })).ok);
const refs = await git.listServerRefs({ http, onAuth, url: given.plainUrl, prefix: "refs/heads/" });
assert.deepEqual(refs.map((found) => [found.ref, found.oid]), [["refs/heads/main", forced]]);

const readable = () => ({ username: "git", password: given.readToken });
await assert.rejects(
  git.push({ ...first, onAuth: readable, ref: "main", remoteRef: "refs/heads/refused" }),
  (error) => error.code === "HttpError" && error.data.statusCode === 403,
);
console.log(JSON.stringify([pushed, forced]));
