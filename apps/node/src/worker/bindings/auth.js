// `env.auth`, as worker code sees it. Sends calls to the node's service.
//
// The node adds a header to each request of a visitor with a session. Only the node can read its value, which identifies
// the session, and it removes this header from what visitors send.

const HANDLE = "svc-auth-session";
const MAX_LIMIT = 100;
// A longer id or cursor is unknown in any case.
const MAX_TEXT = 1024;
// A response can be a stream that lasts longer than the session.
const MAX_AGE_MS = 2000;

class AuthError extends Error {
  constructor(code, message, options) {
    super(message, options);
    this.code = code;
  }
}

const invalid = (message) => new AuthError("invalid_argument", message);

function checkText(name, value) {
  if (typeof value !== "string" || !value.isWellFormed()) {
    throw invalid(`\`${name}\` must be a string without lone surrogates.`);
  }
  return value;
}

function checkLimit(limit) {
  if (limit === undefined || limit === null) return MAX_LIMIT;
  if (!Number.isSafeInteger(limit) || limit < 1) throw invalid("`limit` must be an integer from 1.");
  return Math.min(limit, MAX_LIMIT);
}

class Users {
  #fetch;
  // The user of each request, so that calls in quick succession ask the node only once. An entry ends with its request.
  #current = new WeakMap();

  constructor(service) {
    this.#fetch = service.fetch.bind(service);
  }

  async get(id) {
    return checkText("id", id).length > MAX_TEXT ? null : this.#call("get", { id });
  }

  async list(options) {
    if (options !== undefined && typeof options !== "object") throw invalid("The options must be an object.");
    const { limit, cursor } = options ?? {};
    const hasCursor = cursor !== undefined && cursor !== null;
    if (hasCursor && checkText("cursor", cursor).length > MAX_TEXT) throw invalid("`cursor` is too long.");
    return this.#call("list", { limit: checkLimit(limit), cursor: hasCursor ? cursor : null });
  }

  async delete(id) {
    if (checkText("id", id).length > MAX_TEXT) return;
    try {
      await this.#call("delete", { id });
    } finally {
      // Without a response, the node may have deleted the user.
      this.#current = new WeakMap();
    }
  }

  async current(request) {
    if (!(request instanceof Request)) throw invalid("`request` must be the request that the worker received.");
    const handle = request.headers.get(HANDLE);
    if (handle === null || handle.length > MAX_TEXT) return null;
    // A WebSocket can last longer than the session.
    if (request.headers.has("upgrade")) return this.#call("current", { handle });
    let found = this.#current.get(request);
    if (found?.handle !== handle || Date.now() - found.at >= MAX_AGE_MS) {
      found = { handle, at: Date.now(), user: this.#call("current", { handle }) };
      this.#current.set(request, found);
      // The next call of the request tries again.
      found.user.catch(() => this.#current.delete(request));
    }
    return structuredClone(await found.user);
  }

  async #call(operation, parameters) {
    let response, content;
    try {
      const body = JSON.stringify(parameters);
      response = await this.#fetch(`http://auth/${operation}`, { method: "POST", body });
      content = await response.json();
    } catch (cause) {
      throw new AuthError("auth_unavailable", "The connection to the node failed. Try again.", { cause });
    }
    if (!response.ok) throw new AuthError(content.code, content.message);
    return content;
  }
}

export default function (env) {
  return { users: new Users(env.service) };
}
