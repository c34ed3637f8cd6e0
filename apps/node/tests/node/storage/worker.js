// The worker of the tests of `env.storage`.

const encoder = new TextEncoder();

function equal(actual, expected, what) {
  const [one, other] = [actual, expected].map((value) => JSON.stringify(value));
  if (one !== other) throw new Error(`${what}: ${one} instead of ${other}`);
}

async function fails(code, operation, what) {
  try {
    await operation();
  } catch (error) {
    if (!(error instanceof Error)) throw new Error(`${what}: not an Error`);
    if (error.message.length < 10) throw new Error(`${what}: no message`);
    return equal(error.code, code, what);
  }
  throw new Error(`${what}: no error`);
}

function chunks(...list) {
  return new ReadableStream({
    pull(controller) {
      const next = list.shift();
      if (next === undefined) controller.close();
      else if (next instanceof Error) controller.error(next);
      else controller.enqueue(encoder.encode(next));
    },
  });
}

async function values(storage) {
  const bytes = encoder.encode("xbytesx");
  for (const [name, value, content] of [
    ["string", "tëxt", "tëxt"],
    ["empty", "", ""],
    ["buffer", bytes.buffer, "xbytesx"],
    ["view", bytes.subarray(1, 6), "bytes"],
    ["data view", new DataView(bytes.buffer, 1, 5), "bytes"],
    ["blob", new Blob(["a", "blob"]), "ablob"],
    ["stream", chunks("one ", "two"), "one two"],
    ["empty stream", chunks(), ""],
    ["body", new Response("a body").body, "a body"],
  ]) {
    const before = Date.now();
    const stored = await storage.put(`values/${name}`, value, { contentType: "text/x", metadata: { b: "ü", a: "" } });
    equal(stored.key, `values/${name}`, name);
    equal(stored.size, encoder.encode(content).length, name);
    equal([stored.contentType, stored.metadata], ["text/x", { a: "", b: "ü" }], name);
    if (!(stored.uploaded instanceof Date) || Math.abs(stored.uploaded - before) > 60_000) {
      throw new Error(`${name}: uploaded ${stored.uploaded}`);
    }
    if (!/^[0-9a-f]{32}$/.test(stored.etag)) throw new Error(`${name}: etag ${stored.etag}`);
    equal(await storage.head(stored.key), stored, name);
    const read = await storage.get(stored.key);
    const { key, size, etag, contentType, metadata, uploaded } = read;
    equal({ key, size, etag, contentType, metadata, uploaded }, stored, name);
    equal(await read.text(), content, name);
    await fails("invalid_argument", () => read.text(), `${name} twice`);
    equal((await (await storage.get(key)).arrayBuffer()).byteLength, size, name);
    if (!((await storage.get(key)).body instanceof ReadableStream)) throw new Error(`${name}: no body`);
  }
  await storage.put("values/json", JSON.stringify({ a: [1] }));
  equal(await (await storage.get("values/json")).json(), { a: [1] }, "json");
  equal((await storage.head("values/json")).contentType, null, "no content type");
  const part = await storage.get("values/string", { range: { offset: 1, length: 2 } });
  equal([part.size, new TextDecoder().decode(await part.arrayBuffer())], [5, "ë"], "range");
  equal(await (await storage.get("values/string", { range: { offset: 3 } })).text(), "xt", "range to the end");
  equal(await storage.get("values/string", { range: { offset: 5 } }), null, "past the end");
  equal(await storage.get("values/empty", { range: { offset: 0 } }).then((it) => it.text()), "", "empty range");
  for (const method of ["get", "head"]) equal(await storage[method]("values/none"), null, method);
}

async function keys(storage) {
  for (const key of ["keys/%2e%2e", "keys/..%2f", "keys/é", "keys/e\u0301", "keys//", "keys/ ?#", "keys/\u0001\n", "keys/🦀"]) {
    await storage.put(key, key);
  }
  const { objects, prefixes, cursor } = await storage.list({ prefix: "keys/" });
  const expected = ["keys/\u0001\n", "keys/ ?#", "keys/%2e%2e", "keys/..%2f", "keys//", "keys/e\u0301", "keys/é", "keys/🦀"];
  equal([objects.map((object) => object.key), prefixes, cursor], [expected, [], null], "list");
  if (!(objects[0].uploaded instanceof Date)) throw new Error("list: uploaded");
  for (const key of expected) equal(await (await storage.get(key)).text(), key, key);
  const listed = [];
  let page = { cursor: undefined };
  do {
    page = await storage.list({ prefix: "keys/", limit: 3, cursor: page.cursor });
    listed.push(...page.objects.map((object) => object.key));
  } while (page.cursor !== null);
  equal(listed, expected, "pages");
  equal((await storage.list({ delimiter: "/" })).prefixes, ["keys/", "values/"], "prefixes");
  equal((await storage.list({ limit: 5000 })).cursor, null, "large limit");
  const long = "k".repeat(1024);
  await storage.put(long, "");
  await storage.delete(["keys/é", "keys/never", long]);
  await storage.delete("keys/e\u0301");
  await storage.delete([]);
  equal((await storage.list({ prefix: "keys/" })).objects.length, 6, "deleted");
}

async function conditions(storage) {
  const first = await storage.put("conditions", "1", { onlyIf: { absent: true } });
  equal(await storage.put("conditions", "2", { onlyIf: { absent: true } }), null, "absent");
  equal(await storage.put("conditions", chunks("2"), { onlyIf: { etag: "unknown" } }), null, "etag");
  const second = await storage.put("conditions", chunks("2"), { onlyIf: { etag: first.etag } });
  equal(await storage.put("conditions", chunks("3"), { onlyIf: { etag: first.etag } }), null, "stale");
  equal(await storage.put("conditions", zeros(20 << 20), { onlyIf: { absent: true } }), null, "large stream");
  equal((await storage.put("conditions", "4", { onlyIf: {} })).etag === second.etag, false, "no condition");
}

async function errors(storage) {
  const invalidKeys = ["", "\ud800", "a\udfff", "a\0b", ".", "..", "a/../b", "./a", "k".repeat(1025), "é".repeat(513), 1, null, undefined, {}];
  for (const key of invalidKeys) {
    for (const [method, argument] of [["put", "x"], ["get"], ["head"], ["delete"]]) {
      await fails("invalid_key", () => storage[method](key, argument), `${method} ${JSON.stringify(key)}`);
    }
    await fails("invalid_key", () => storage.delete(["a", key]), `delete [${JSON.stringify(key)}]`);
  }
  const [locked, used] = [chunks("x"), chunks("x")];
  locked.getReader();
  await new Response(used).text();
  for (const value of [undefined, null, 1, {}, [], new Date(), locked, used]) {
    await fails("invalid_argument", () => storage.put("a", value), `value ${value}`);
  }
  for (const options of [
    "x",
    { contentType: 1 },
    { contentType: "a\nb" },
    { contentType: "x".repeat(256) },
    { metadata: "x" },
    { metadata: { a: 1 } },
    { metadata: { a: "\ud800" } },
    { metadata: { a: "x".repeat(2048) } },
    { metadata: { a: "\n" } },
    { metadata: { "a\u0001": "" } },
    { metadata: Object.fromEntries(Array.from({ length: 65 }, (_, number) => [number, ""])) },
    { metadata: { a: "x".repeat(1 << 20) } },
    { onlyIf: "x" },
    { onlyIf: { absent: false } },
    { onlyIf: { absent: true, etag: "x" } },
    { onlyIf: { etag: 1 } },
  ]) {
    await fails("invalid_argument", () => storage.put("a", "x", options), JSON.stringify(options).slice(0, 60));
  }
  for (const range of ["x", {}, { offset: -1 }, { offset: 0.5 }, { offset: NaN }, { offset: "1" }, { offset: 0, length: -1 }]) {
    await fails("invalid_argument", () => storage.get("a", { range }), `range ${JSON.stringify(range)}`);
  }
  for (const options of [{ limit: 0 }, { limit: 1.5 }, { limit: "1" }, { cursor: "x" }, { cursor: 1 }, { prefix: 1 }, { prefix: "\ud800" }, { delimiter: 1 }, 1]) {
    await fails("invalid_argument", () => storage.list(options), `list ${JSON.stringify(options)}`);
  }
  await fails("invalid_argument", () => storage.delete(Array(1001).fill("a")), "too many keys");
  await storage.delete(Array.from({ length: 1000 }, (_, number) => `${"\u0001".repeat(1000)}${number}`));
  equal(await storage.head("a"), null, "nothing stored");
}

// Failed streams store nothing, whenever they fail.
async function failingStreams(storage) {
  await storage.put("failing", "before");
  const large = "x".repeat(100_000);
  for (const list of [[new Error("at the beginning")], ["one", new Error("early")], [large, large, large, new Error("late")]]) {
    await fails("storage_unavailable", () => storage.put("failing", chunks(...list)), `stream of ${list.length}`);
    equal(await (await storage.get("failing")).text(), "before", `stream of ${list.length}`);
  }
}

// The object is all that code can reach.
async function encapsulation(storage) {
  equal(Object.keys(storage), [], "properties");
  equal(Reflect.ownKeys(storage), [], "own keys");
  const methods = Reflect.ownKeys(Object.getPrototypeOf(storage)).sort();
  equal(methods, ["constructor", "delete", "get", "head", "list", "put"], "methods");
}

function zeros(bytes) {
  const chunk = new Uint8Array(256 * 1024);
  let left = bytes;
  return new ReadableStream({
    pull(controller) {
      controller.enqueue(left < chunk.length ? chunk.slice(0, left) : chunk.slice());
      left -= Math.min(left, chunk.length);
      if (left === 0) controller.close();
    },
  });
}

export default {
  async fetch(request, env) {
    const { storage } = env;
    const url = new URL(request.url);
    const key = url.searchParams.get("key");
    try {
      switch (url.pathname) {
        case "/granted":
          return new Response(String(storage !== undefined));
        case "/checks":
          for (const check of [values, keys, conditions, errors, failingStreams, encapsulation]) await check(storage);
          return new Response("ok");
        case "/zeros":
          return Response.json(await storage.put(key, zeros(Number(url.searchParams.get("bytes")))));
        case "/large": {
          // The response begins before the put ends, because the node waits for its beginning for a limited time.
          const bytes = Number(url.searchParams.get("bytes"));
          const stored = storage.put(key, zeros(bytes)).then((object) => JSON.stringify(object));
          const encoder = new TextEncoder();
          return new Response(new ReadableStream({
            start(controller) {
              controller.enqueue(encoder.encode(" "));
            },
            async pull(controller) {
              controller.enqueue(encoder.encode(await stored));
              controller.close();
            },
          }));
        }
        case "/put":
          return Response.json(await storage.put(key, request.body));
        case "/get": {
          const object = await storage.get(key);
          return object === null ? new Response("null", { status: 404 }) : new Response(object.body);
        }
        case "/exhaust": {
          await storage.put("large", zeros(4 << 20));
          const unread = await Promise.all(Array.from({ length: 128 }, () => storage.get("large")));
          const waiting = Array.from({ length: 1100 }, () => storage.head("large"));
          const { code } = await Promise.any(waiting.map((call) => call.then(Promise.reject, (error) => error)));
          await Promise.all(unread.map((object) => object.body.cancel()));
          const rest = (await Promise.allSettled(waiting)).filter((call) => call.status === "fulfilled").length;
          return Response.json({ code, rest: rest > 1000, after: (await storage.head("large")).size });
        }
        case "/list":
          return Response.json((await storage.list()).objects.map((object) => [object.key, object.size]));
        case "/delete":
          await storage.delete(key);
          return new Response("ok");
      }
    } catch (error) {
      return Response.json({ code: error.code, message: error.message, stack: error.stack }, { status: 500 });
    }
    return new Response("unknown", { status: 400 });
  },
};
