// The worker of the tests of `env.db`.

function show(value) {
  const replace = (_, it) => {
    if (it instanceof Uint8Array) return `bytes ${Array.from(it)}`;
    if (typeof it === "bigint" || typeof it === "symbol" || typeof it === "function") return String(it);
    if (typeof it === "number" && (!Number.isFinite(it) || Object.is(it, -0))) return `number ${Object.is(it, -0) ? "-0" : it}`;
    return it;
  };
  return JSON.stringify(value, replace);
}

function equal(actual, expected, what) {
  const [one, other] = [actual, expected].map(show);
  if (one !== other) throw new Error(`${what}: ${one} instead of ${other}`);
}

async function fails(code, operation, what) {
  try {
    await operation();
  } catch (error) {
    if (!(error instanceof Error)) throw new Error(`${what}: not an Error`);
    if (error.message.length < 10) throw new Error(`${what}: no message`);
    equal(error.code, code, `${what} (${error.message})`);
    return error;
  }
  throw new Error(`${what}: no error`);
}

const bytes = (...list) => new Uint8Array(list);

// A type, an expression, and its value. Values also pass through a parameter, unless the last element says otherwise.
const VALUES = [
  ["int2", "'-32768'", -32768],
  ["int4", "2147483647", 2147483647],
  ["int8", "'9223372036854775807'", "9223372036854775807"],
  ["float4", "'0.1'", 0.1],
  ["float8", "'0.1'", 0.1],
  ["float8", "'-0'", -0],
  ["float8", "'NaN'", NaN],
  ["float8", "'-Infinity'", -Infinity],
  ["float8", "'5e-324'", 5e-324],
  ["float8", "'1.7976931348623157e308'", Number.MAX_VALUE],
  ["numeric", "'12345678901234567890.12345678901234567890'", "12345678901234567890.12345678901234567890"],
  ["numeric", "'NaN'", "NaN"],
  ["bool", "true", true],
  ["bool", "false", false],
  ["text", "'a\"\\é🦀\u0001'", 'a"\\é🦀\u0001'],
  ["text", "''", ""],
  ["varchar", "'x'", "x"],
  ["json", `'{"b": [1, null, "x"], "a": 1.5}'`, { b: [1, null, "x"], a: 1.5 }],
  ["jsonb", `'[true, {"k": "ü"}]'`, [true, { k: "ü" }]],
  ["jsonb", `'"text"'`, "text"],
  ["jsonb", "'5'", 5],
  ["jsonb", "'false'", false],
  ["jsonb", "'null'", null, "null is NULL in a parameter"],
  ["timestamptz", "'2024-01-02 03:04:05.678901+02'", "2024-01-02T01:04:05.678901Z"],
  ["timestamptz", "'infinity'", "infinity"],
  ["timestamptz", "'10000-01-01 00:00:00Z'", "+010000-01-01T00:00:00Z"],
  ["timestamptz", "'0044-03-15 12:00:00Z BC'", "-000043-03-15T12:00:00Z"],
  ["timestamptz", "'0001-01-01 00:00:00Z BC'", "0000-01-01T00:00:00Z"],
  ["timestamp", "'2024-02-29 23:59:59'", "2024-02-29T23:59:59"],
  ["timestamp", "'294276-12-31 23:59:59.999999'", "+294276-12-31T23:59:59.999999"],
  ["date", "'2024-02-29'", "2024-02-29"],
  ["date", "'-infinity'", "-infinity"],
  ["date", "'4713-01-01 BC'", "-004712-01-01"],
  ["date", "'5874897-12-31'", "+5874897-12-31"],
  ["bytea", "'\\x00ff10'", bytes(0, 255, 16)],
  ["bytea", "''", bytes()],
  ["uuid", "'6F9619FF-8B86-D011-B42D-00C04FC964FF'", "6f9619ff-8b86-d011-b42d-00c04fc964ff"],
  ["interval", "'1 year 2 days 03:04:05'", "1 year 2 days 03:04:05"],
  ["time", "'03:04:05.5'", "03:04:05.5"],
  ["inet", "'10.0.0.1/8'", "10.0.0.1/8"],
  ["int4range", "'[1,5)'", "[1,5)"],
  ["point", "'(1,2)'", "(1,2)"],
  ["mood", "'sad'", "sad"],
  ["pair", "'(1,\"a b\")'", '(1,"a b")'],
  // Postgres describes a domain as its base type.
  ["percent", "7", 7, "as a parameter too"],
  ["int4[]", "'{1,NULL,-3}'", [1, null, -3]],
  ["int4[]", "'{}'", []],
  ["int4[]", "'{{1,2},{3,4}}'", [[1, 2], [3, 4]]],
  ["int4[]", "'[0:1]={5,6}'", [5, 6], "the bounds are lost"],
  ["int8[]", "'{1}'", ["1"]],
  ["float8[]", "'{NaN,-0,1.5,Infinity}'", [NaN, -0, 1.5, Infinity]],
  ["text[]", `'{NULL,"NULL","","a\\"b\\\\c","{,}"," "}'`, [null, "NULL", "", 'a"b\\c', "{,}", " "]],
  ["bool[]", "'{t,f}'", [true, false]],
  ["bytea[]", `'{"\\\\x00ff",NULL}'`, [bytes(0, 255), null]],
  ["jsonb[]", `ARRAY['{"a": [1]}', 'null', NULL, '"x"']::jsonb[]`, [{ a: [1] }, null, null, "x"], "null is NULL"],
  ["json[]", `ARRAY['[1, [2]]', '"x"']::json[]`, [[1, [2]], "x"]],
  ["timestamptz[]", `'{"2024-01-02 03:04:05+00","0044-03-15 12:00:00+00 BC"}'`, ["2024-01-02T03:04:05Z", "-000043-03-15T12:00:00Z"]],
  ["mood[]", "'{sad,NULL}'", ["sad", null]],
  ["uuid[]", "'{6f9619ff-8b86-d011-b42d-00c04fc964ff}'", ["6f9619ff-8b86-d011-b42d-00c04fc964ff"]],
  ["percent[]", "'{1,2}'", [1, 2]],
  ["box[]", "'{(1,1),(0,0);(2,2),(1,1)}'", ["(1,1),(0,0)", "(2,2),(1,1)"]],
  ["int2vector", "'1 2'", "1 2"],
];

async function types(db) {
  await db.batch([
    { text: "CREATE TYPE mood AS ENUM ('happy', 'sad')" },
    { text: "CREATE TYPE pair AS (a int4, b text)" },
    { text: "CREATE DOMAIN percent AS int4 CHECK (value <= 100)" },
  ]);
  for (const [type, expression, value, note] of VALUES) {
    const what = `${type} ${expression}`;
    const { rows, rowCount, fields } = await db.query(`SELECT (${expression})::${type} AS v, NULL::${type} AS n`);
    equal([rows, rowCount], [[{ v: value, n: null }], 1], what);
    equal(fields.map(({ name }) => name), ["v", "n"], what);
    equal(fields[0].type, type === "percent" ? "int4" : type, what);
    if (note === undefined || type === "percent") {
      const again = await db.query(`SELECT $1::${type} AS v, $2::${type} AS n, $1::${type} IS NULL AS is_null`, [value, null]);
      equal(again.rows, [{ v: value, n: null, is_null: false }], `${what} as a parameter`);
      equal((await db.query(`SELECT $1::${type} IS NULL AS n`, [undefined])).rows, [{ n: true }], what);
    }
  }
}

// JavaScript values whose kind differs from that of the result.
async function parameters(db) {
  const date = new Date(Date.UTC(2024, 0, 2, 3, 4, 5, 6));
  for (const [type, parameter, value] of [
    ["int8", 7, "7"],
    ["int8", 9223372036854775807n, "9223372036854775807"],
    ["numeric", 1.5, "1.5"],
    ["int4", "7", 7],
    ["text", 7, "7"],
    ["text", true, "true"],
    ["bool", "yes", true],
    ["timestamptz", date, "2024-01-02T03:04:05.006Z"],
    ["timestamp", date, "2024-01-02T03:04:05.006"],
    ["date", date, "2024-01-02"],
    ["timestamptz", new Date(-62198755200000), "-000001-01-01T00:00:00Z"],
    ["timestamptz", new Date(8640000000000000), "+275760-09-13T00:00:00Z"],
    ["timestamptz", "2024-01-02T03:04:05+02:00", "2024-01-02T01:04:05Z"],
    ["bytea", new Uint8Array([1, 2]).buffer, bytes(1, 2)],
    ["bytea", new DataView(new Uint8Array([1, 2, 3]).buffer, 1, 1), bytes(2)],
    ["bytea", "\\x01", bytes(1)],
    ["json", [1, [date, undefined, NaN]], [1, ["2024-01-02T03:04:05.006Z", null, null]]],
    ["jsonb", { a: undefined, b: { toJSON: () => "json" } }, { b: "json" }],
    ["jsonb", [[[[[[[[1]]]]]]]], [[[[[[[[1]]]]]]]]],
    ["jsonb", date, "2024-01-02T03:04:05.006Z"],
    ["jsonb", { __proto__: null, ["__proto__"]: 1 }, JSON.parse('{"__proto__": 1}')],
    ["int4[]", "{1,2}", [1, 2]],
    ["text[]", [1, true, date], ["1", "true", "2024-01-02T03:04:05.006Z"]],
    ["timestamptz[]", [date], ["2024-01-02T03:04:05.006Z"]],
  ]) {
    const { rows } = await db.query(`SELECT $1::${type} AS v`, [parameter]);
    equal(rows, [{ v: value }], `${type} of ${show(parameter)}`);
  }
  equal((await db.query("SELECT $1 AS v", ["inferred"])).rows, [{ v: "inferred" }], "inferred");
  equal((await db.query("SELECT $2 || $1 || $2 AS v", ["b", "a"])).rows, [{ v: "aba" }], "order");
}

// The test transfers 10 MiB in each direction, in separate requests, because the memory of a worker is limited.
const LARGE = 10 << 20;

async function largeBytes(db) {
  const content = new Uint8Array(LARGE).fill(7);
  content[1] = 255;
  equal((await db.query("SELECT length($1::bytea) AS n, get_byte($1, 1) AS b", [content])).rows, [{ n: LARGE, b: 255 }], "parameter");
}

async function largeText(db) {
  equal((await db.query("SELECT octet_length($1) AS n", ["é".repeat(LARGE / 2)])).rows, [{ n: LARGE }], "parameter");
}

async function largeResults(db) {
  const [{ t }] = (await db.query("SELECT repeat('é', $1) AS t", [LARGE / 2])).rows;
  equal([t.length, t.at(-1)], [LARGE / 2, "é"], "text");
  const [{ b }] = (await db.query("SELECT decode(repeat('00ff', $1), 'hex') AS b", [LARGE / 2])).rows;
  equal([b.length, b.at(-2), b.at(-1)], [LARGE, 0, 255], "bytes");
}

async function results(db) {
  equal(await db.query("SELECT 1 AS a, 'x' AS \"A b\", 2 AS a"), {
    rows: [{ a: 2, "A b": "x" }],
    rowCount: 1,
    fields: [{ name: "a", type: "int4" }, { name: "A b", type: "text" }, { name: "a", type: "int4" }],
  }, "names");
  const [row] = (await db.query("SELECT 5 AS \"__proto__\", '{\"x\": 1}'::json AS constructor")).rows;
  equal([Object.keys(row), Object.getPrototypeOf(row) === Object.prototype], [["__proto__", "constructor"], true], "names of properties");
  await db.query("CREATE TABLE counted (id serial PRIMARY KEY, v text)");
  const none = { rows: [], rowCount: 0, fields: [] };
  equal(await db.query(""), none, "empty");
  equal(await db.query("-- a comment"), none, "comment");
  equal(await db.query("SELECT"), { rows: [{}], rowCount: 1, fields: [] }, "no columns");
  const { rows, rowCount } = await db.query("SHOW timezone");
  equal([rows, rowCount], [[{ TimeZone: "UTC" }], 1], "show");
  const explained = await db.query("EXPLAIN SELECT 1 UNION ALL SELECT 2");
  equal([explained.rows.length > 1, explained.rowCount], [true, explained.rows.length], "explain");
  equal((await db.query("INSERT INTO counted (v) VALUES ('a'), ('b')")).rowCount, 2, "insert");
  equal((await db.query("UPDATE counted SET v = $1", ["c"])).rowCount, 2, "update");
  equal((await db.query("DELETE FROM counted RETURNING id")).rows, [{ id: 1 }, { id: 2 }], "returning");
  equal((await db.query("SELECT * FROM counted")).fields, [{ name: "id", type: "int4" }, { name: "v", type: "text" }], "no rows");
  const many = await db.query("SELECT n, repeat('x', 100) AS t FROM generate_series(1, 50000) n");
  equal([many.rowCount, many.rows.length, many.rows[49999].n], [50000, 50000, 50000], "many rows");
  // Statements that control transactions themselves
  for (const text of ["VACUUM counted", "CREATE INDEX CONCURRENTLY ON counted (v)", "DO $$ BEGIN COMMIT; END $$"]) {
    await db.query(text);
  }
}

async function errors(db) {
  await db.query("CREATE TABLE unique_once (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)");
  await db.query("INSERT INTO unique_once VALUES (1)");
  for (const [code, text, params] of [
    ["42601", "SELEC 1"],
    ["42601", "SELECT 1; SELECT 2"],
    ["42P01", "SELECT * FROM missing"],
    ["22012", "SELECT 1 / 0"],
    ["22012", "SELECT 1 / (30000 - n), repeat('x', 100) FROM generate_series(1, 40000) n"],
    ["22P02", "SELECT $1::int4", ["x"]],
    ["22P02", "SELECT $1::int4", [1.5]],
    ["22003", "SELECT $1::int2", [40000]],
    ["22P02", "SELECT $1::jsonb", [{ text: "\ud800" }]],
    ["22021", "SELECT $1", ["a\0b"]],
    ["22P05", "SELECT $1::jsonb", ["a\0b"]],
    ["23505", "INSERT INTO unique_once VALUES (1)"],
    ["42501", "CREATE ROLE other"],
    ["0A000", "COPY unique_once FROM STDIN"],
    ["0A000", "/* x */ copy (SELECT 1) TO STDOUT"],
    ["0A000", "BEGIN"],
    ["0A000", "-- x\n;ROLLBACK"],
    ["P0001", "DO $$ BEGIN RAISE EXCEPTION 'a message of the function'; END $$"],
    ["invalid_argument", "SELECT $1::int4, $2::int4", [1]],
    ["invalid_argument", "SELECT 1", [1]],
    ["invalid_argument", "SELECT $1::text", [{}]],
    ["invalid_argument", "SELECT $1::text", [bytes(1)]],
    ["invalid_argument", "SELECT $1::int4", [[1]]],
    ["invalid_argument", "SELECT $1::bytea", [1]],
    ["invalid_argument", "SELECT $1::int4[]", [1]],
    ["invalid_argument", "SELECT '\0'"],
    ["invalid_argument", "SELECT '\ud800'"],
    ["invalid_argument", "SELECT $1", ["\udfff"]],
    ["invalid_argument", "SELECT $1", [new Date(NaN)]],
    ["invalid_argument", "SELECT $1", [() => 1]],
    ["invalid_argument", "SELECT $1", [Symbol("x")]],
    ["invalid_argument", "SELECT $1::jsonb", [{ big: 1n }]],
    ["invalid_argument", "SELECT $1::jsonb", [{ toJSON: () => undefined }]],
    ["invalid_argument", "SELECT $1", "x"],
    ["invalid_argument", "SELECT $1", { 0: "x" }],
    ["invalid_argument", 1],
    ["invalid_argument", undefined],
    ["invalid_argument", { text: "SELECT 1" }],
    ["invalid_argument", "SELECT $1::text", ["x".repeat(17 << 20)]],
    ["result_too_large", "SELECT repeat('x', 20 << 20)"],
    ["result_too_large", "SELECT repeat('x', 1000) FROM generate_series(1, 100000)"],
    ["result_too_large", "SELECT repeat(chr(1), 4 << 20)"],
  ]) {
    await fails(code, () => db.query(text, params), show([text, params]).slice(0, 80));
  }
  const cyclic = {};
  cyclic.self = cyclic;
  await fails("invalid_argument", () => db.query("SELECT $1::json", [cyclic]), "cyclic");
  const { message } = await fails("P0001", () => db.query("DO $$ BEGIN RAISE EXCEPTION 'exactly this'; END $$"), "message");
  equal(message, "exactly this", "message");
  equal((await db.query("SELECT count(*)::int4 AS n FROM unique_once")).rows, [{ n: 1 }], "after the errors");
  // If the result is refused, the write is rolled back.
  await fails("result_too_large", () => db.query("INSERT INTO unique_once SELECT generate_series(2, 3000) RETURNING repeat('x', 10000)"), "large write");
  equal((await db.query("SELECT count(*)::int4 AS n FROM unique_once")).rows, [{ n: 1 }], "after the large write");
}

async function batches(db) {
  equal(await db.batch([]), [], "empty");
  const done = await db.batch([
    { text: "CREATE TABLE batched (id int PRIMARY KEY, v text)" },
    { text: "INSERT INTO batched VALUES ($1, $2), ($3, $4)", params: [1, "a", 2, "b"] },
    { text: "SELECT v FROM batched ORDER BY id", params: [] },
    { text: "SELECT count(*)::int4 AS n FROM batched", params: null },
  ]);
  equal(done.map(({ rowCount }) => rowCount), [0, 2, 2, 1], "row counts");
  equal([done[2].rows, done[3].rows], [[{ v: "a" }, { v: "b" }], [{ n: 2 }]], "rows");
  const insert = { text: "INSERT INTO batched VALUES ($1, $2)", params: [3, "c"] };
  const count = async () => (await db.query("SELECT count(*)::int4 AS n FROM batched")).rows[0].n;
  for (const [code, ...others] of [
    ["22012", { text: "SELECT 1 / 0" }],
    ["23505", { text: "INSERT INTO batched VALUES (1, 'again')" }],
    ["42601", { text: "not SQL" }],
    ["invalid_argument", { text: "SELECT $1::text", params: [{}] }],
    ["0A000", { text: "COMMIT" }, { text: "not SQL" }],
    ["0A000", { text: "ROLLBACK" }],
    ["25001", { text: "VACUUM batched" }],
    ["result_too_large", { text: "SELECT repeat('x', 20 << 20)" }],
    ["57014", { text: "SET LOCAL statement_timeout = 10" }, { text: "SELECT pg_sleep(60)" }],
    ["2D000", { text: "DO $$ BEGIN COMMIT; END $$" }],
  ]) {
    await fails(code, () => db.batch([insert, ...others]), `batch ${show(others)}`);
    equal(await count(), 2, `rolled back after ${code}`);
  }
  // A deferred constraint fails at the commit.
  await db.query("CREATE TABLE deferred (id int REFERENCES batched DEFERRABLE INITIALLY DEFERRED)");
  await fails("23503", () => db.batch([insert, { text: "INSERT INTO deferred VALUES (99)" }]), "deferred");
  await fails("23503", () => db.query("INSERT INTO deferred VALUES (99)"), "deferred query");
  equal(await count(), 2, "deferred");
  const saved = await db.batch([
    { text: "SAVEPOINT a" },
    insert,
    { text: "ROLLBACK TO a" },
    { text: "INSERT INTO batched VALUES (4, 'd')" },
  ]);
  equal([saved.length, await count()], [4, 3], "savepoints");
  for (const statements of [undefined, {}, "x", [null], ["SELECT 1"], [{}], [{ text: 1 }], Array(1001).fill({ text: "" })]) {
    await fails("invalid_argument", () => db.batch(statements), `batch of ${show(statements)?.slice(0, 40)}`);
  }
  equal((await db.batch(Array(1000).fill({ text: "SELECT 1 AS one" }))).length, 1000, "1,000 statements");
  // A setting applies only to the statements of its batch.
  const german = await db.batch([
    { text: "SET DateStyle = German" },
    { text: "SET bytea_output = escape" },
    { text: "SELECT '2024-01-02'::date AS d, '\\x00ff'::bytea AS b" },
  ]);
  equal(german[2].rows, [{ d: "02.01.2024", b: bytes(0, 255) }], "settings");
}

// A call leaves no state behind that a later call can see, whichever connections they use.
async function leaks(db) {
  const onAll = (text) => Promise.all(Array.from({ length: 16 }, () => db.query(text)));
  await db.query("CREATE SEQUENCE leak_sequence");
  const before = (await db.query("SELECT current_user AS u, session_user AS s")).rows;
  for (const text of [
    "SET DateStyle = German",
    "SET bytea_output = escape",
    "SET TimeZone = 'Europe/Berlin'",
    "SET extra_float_digits = -15",
    "SET IntervalStyle = iso_8601",
    "SET search_path = pg_catalog",
    "SET default_transaction_read_only = on",
    "SET my.variable = 'leaked'",
    "SET ROLE NONE",
    "SET statement_timeout = 1",
    "SET client_encoding = LATIN1",
    "CREATE TEMP TABLE leaked AS SELECT 1",
    "PREPARE leaked AS SELECT 1",
    "DECLARE leaked CURSOR WITH HOLD FOR SELECT 1",
    "LISTEN leaked",
    "SELECT pg_advisory_lock(42)",
    "SELECT nextval('leak_sequence')",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
  ]) {
    // Concurrent advisory locks would wait for each other.
    await (text.includes("advisory") ? db.query(text) : onAll(text));
  }
  await db.batch([{ text: "SET LOCAL ROLE NONE" }]);
  const seen = await onAll(`
    SELECT current_user AS u, session_user AS s, current_setting('DateStyle') AS date, current_setting('TimeZone') AS zone,
      current_setting('bytea_output') AS bytes, current_setting('IntervalStyle') AS interval, 0.1::float8 AS float,
      current_setting('search_path') AS path, current_setting('transaction_read_only') AS read_only,
      coalesce(current_setting('my.variable', true), '') AS mine, current_setting('client_encoding') AS encoding,
      to_regclass('leaked') IS NULL AS temporary, (SELECT count(*) FROM pg_prepared_statements WHERE name <> '') AS prepared,
      (SELECT count(*) FROM pg_cursors WHERE is_holdable) AS cursors, (SELECT count(*) FROM pg_listening_channels()) AS channels,
      pg_try_advisory_xact_lock(42) AS lock, current_setting('statement_timeout') AS timeout`);
  for (const { rows } of seen) {
    const { lock, ...rest } = rows[0];
    equal(rest, {
      u: before[0].u, s: before[0].s, date: "ISO, MDY", zone: "UTC", bytes: "hex", interval: "postgres", float: 0.1,
      path: '"$user", public', read_only: "off", mine: "", encoding: "UTF8", temporary: true, prepared: "0", cursors: "0",
      channels: "0", timeout: "0",
    }, "after the leaks");
  }
  equal((await db.query("SELECT pg_try_advisory_lock(42) AS lock")).rows, [{ lock: true }], "advisory lock");
  await fails("55000", () => db.query("SELECT currval('leak_sequence')"), "sequence");
}

// 100 calls over 8 connections.
async function concurrency(db) {
  const calls = Array.from({ length: 100 }, (_, number) =>
    db.query("SELECT $1::int4 AS number, pg_sleep(0.05) IS NULL AS slept, pg_backend_pid() AS process", [number]),
  );
  const rows = (await Promise.all(calls)).map((result) => result.rows[0]);
  equal(rows.map(({ number }) => number), rows.map((_, number) => number), "results");
  const processes = new Set(rows.map((row) => row.process)).size;
  if (processes > 8) throw new Error(`${processes} connections`);
}

async function encapsulation(db) {
  equal(Reflect.ownKeys(db), [], "own keys");
  equal(Reflect.ownKeys(Object.getPrototypeOf(db)).sort(), ["batch", "constructor", "query"], "methods");
}

export default {
  async fetch(request, env) {
    const { db } = env;
    const url = new URL(request.url);
    try {
      switch (url.pathname) {
        case "/granted":
          return new Response(String(db !== undefined));
        case "/checks":
          for (const check of [types, parameters, results, errors, batches, leaks, concurrency, encapsulation]) await check(db);
          return new Response("ok");
        case "/large-bytes":
          await largeBytes(db);
          return new Response("ok");
        case "/large-text":
          await largeText(db);
          return new Response("ok");
        case "/large-results":
          await largeResults(db);
          return new Response("ok");
        case "/block":
          for (;;);
        case "/query": {
          const { text, params } = await request.json();
          return Response.json(await db.query(text, params));
        }
      }
    } catch (error) {
      return Response.json({ code: error.code, message: error.message, stack: error.stack }, { status: 500 });
    }
    return new Response("unknown", { status: 400 });
  },
};
