// `env.storage`, as worker code sees it. Sends calls to the node's service (docs/storage.md).
//
// Keys travel in JSON, in a body or percent-encoded in a header, so that no part of them is read as a URL. The node
// checks all arguments again: worker code could replace any function that this module calls.

const MAX_LIMIT = 1000;
const MAX_DELETED = 1000;
// The longest header with arguments. Longer arguments exceed a limit of the node in any case.
const MAX_HEADER = 48 * 1024;
const ARGUMENTS = "svc-storage-arguments";
const OBJECT = "svc-storage-object";
const END = "svc-storage-end";

class StorageError extends Error {
  constructor(code, message, options) {
    super(message, options);
    this.code = code;
  }
}

const invalid = (message) => new StorageError("invalid_argument", message);
const unavailable = (cause) =>
  new StorageError("storage_unavailable", "The connection to the object storage failed. Try again later.", { cause });

function checkKey(key) {
  if (typeof key !== "string" || !key.isWellFormed()) {
    throw new StorageError("invalid_key", "A key must be a string without lone surrogates.");
  }
  if (key.length === 0 || key.length > 1024) {
    throw new StorageError("invalid_key", "A key must have 1 to 1,024 bytes in UTF-8.");
  }
  return key;
}

function checkString(name, value) {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== "string" || !value.isWellFormed()) {
    throw invalid(`\`${name}\` must be a string without lone surrogates.`);
  }
  return value;
}

function checkCount(name, value, least) {
  if (value === undefined || value === null) return undefined;
  if (!Number.isSafeInteger(value) || value < least) throw invalid(`\`${name}\` must be an integer from ${least}.`);
  return value;
}

function checkOptions(options) {
  if (options === undefined || options === null) return {};
  if (typeof options !== "object") throw invalid("The options must be an object.");
  return options;
}

function checkMetadata(metadata) {
  if (metadata === undefined || metadata === null) return {};
  if (typeof metadata !== "object") throw invalid("`metadata` must be an object of strings.");
  const entries = Object.entries(metadata);
  for (const [name, value] of entries) {
    if (typeof value !== "string" || !value.isWellFormed() || !name.isWellFormed()) {
      throw invalid("`metadata` must be an object of strings without lone surrogates.");
    }
  }
  return Object.fromEntries(entries);
}

function checkCondition(condition) {
  if (condition === undefined || condition === null) return undefined;
  if (typeof condition !== "object") throw invalid("`onlyIf` must be an object.");
  const etag = checkString("onlyIf.etag", condition.etag);
  const { absent } = condition;
  if (absent === undefined) return etag === undefined ? undefined : { etag };
  if (absent !== true || etag !== undefined) {
    throw invalid("`onlyIf` must be either `{ etag }` or `{ absent: true }`.");
  }
  return { absent };
}

function checkRange(range) {
  if (range === undefined || range === null) return undefined;
  if (typeof range !== "object" || range.offset === undefined) throw invalid("`range` must be `{ offset, length? }`.");
  return { offset: checkCount("range.offset", range.offset, 0), length: checkCount("range.length", range.length, 0) };
}

function checkValue(value) {
  const isValue =
    typeof value === "string" ||
    value instanceof ArrayBuffer ||
    ArrayBuffer.isView(value) ||
    value instanceof Blob ||
    value instanceof ReadableStream;
  if (!isValue) throw invalid("The value must be a string, ArrayBuffer, ArrayBufferView, Blob or ReadableStream.");
  try {
    return value instanceof ReadableStream ? new Response(value).body : value;
  } catch {
    throw invalid("The stream is locked or was already read.");
  }
}

// The end of a request does not show whether a stream failed. So a stream is followed by a random text that the node
// expects at the end.
async function pipe(stream, writable, end) {
  try {
    await stream.pipeTo(writable, { preventClose: true });
    const writer = writable.getWriter();
    await writer.write(new TextEncoder().encode(end));
    await writer.close();
  } catch (error) {
    await writable.abort(error).catch(() => {});
    throw error;
  }
}

const storedObject = (object) => ({ ...object, uploaded: new Date(object.uploaded) });

/** An object with its content. */
class StoredContent {
  #response;

  constructor(object, response) {
    Object.assign(this, storedObject(object));
    this.#response = response;
  }

  get body() {
    return this.#response.body;
  }

  get bodyUsed() {
    return this.#response.bodyUsed;
  }

  arrayBuffer() {
    return this.#read("arrayBuffer");
  }

  async json() {
    return JSON.parse(await this.text());
  }

  text() {
    return this.#read("text");
  }

  async #read(method) {
    if (this.#response.bodyUsed) throw invalid("The body was already read.");
    try {
      return await this.#response[method]();
    } catch (error) {
      throw unavailable(error);
    }
  }
}

class Storage {
  #fetch;

  constructor(service) {
    this.#fetch = service.fetch.bind(service);
  }

  async put(key, value, options) {
    const { contentType, metadata, onlyIf } = checkOptions(options);
    const content = checkValue(value);
    const header = encodeURIComponent(
      JSON.stringify({
        key: checkKey(key),
        contentType: checkString("contentType", contentType),
        metadata: checkMetadata(metadata),
        onlyIf: checkCondition(onlyIf),
      }),
    );
    if (header.length > MAX_HEADER) throw invalid("`metadata` and `contentType` are too long.");
    const headers = { [ARGUMENTS]: header };
    const response = await (content instanceof ReadableStream
      ? this.#sendStream(content, headers)
      : this.#send("put", content, headers));
    return response.status === 204 ? null : storedObject(await response.json());
  }

  async get(key, options) {
    const { range } = checkOptions(options);
    const response = await this.#call("get", { key: checkKey(key), range: checkRange(range) });
    if (response.status === 204) return null;
    return new StoredContent(JSON.parse(decodeURIComponent(response.headers.get(OBJECT))), response);
  }

  async head(key) {
    const response = await this.#call("head", { key: checkKey(key) });
    return response.status === 204 ? null : storedObject(await response.json());
  }

  async delete(keys) {
    const list = Array.isArray(keys) ? keys : [keys];
    if (list.length > MAX_DELETED) throw invalid("At most 1,000 keys can be deleted in one call.");
    const checked = list.map(checkKey);
    if (checked.length > 0) await this.#call("delete", { keys: checked });
  }

  async list(options) {
    const { prefix, limit, cursor, delimiter } = checkOptions(options);
    const response = await this.#call("list", {
      prefix: checkString("prefix", prefix),
      delimiter: checkString("delimiter", delimiter),
      cursor: checkString("cursor", cursor),
      limit: Math.min(checkCount("limit", limit, 1) ?? MAX_LIMIT, MAX_LIMIT),
    });
    const page = await response.json();
    return { ...page, objects: page.objects.map(storedObject) };
  }

  #call(operation, parameters) {
    return this.#send(operation, JSON.stringify(parameters), {});
  }

  async #sendStream(stream, headers) {
    const { readable, writable } = new IdentityTransformStream();
    const end = crypto.randomUUID();
    let failure;
    pipe(stream, writable, end).catch((error) => {
      failure = error;
    });
    try {
      return await this.#send("put", readable, { ...headers, [END]: end });
    } catch (error) {
      error.cause ??= failure;
      throw error;
    }
  }

  async #send(operation, body, headers) {
    let response;
    try {
      response = await this.#fetch(`http://storage/${operation}`, { method: "POST", headers, body });
    } catch (error) {
      throw unavailable(error);
    }
    if (response.ok) return response;
    const { code, message } = await response.json();
    throw new StorageError(code, message);
  }
}

export default function (env) {
  return new Storage(env.service);
}
