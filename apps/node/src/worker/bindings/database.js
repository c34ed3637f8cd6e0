// `env.db`, as worker code sees it. Sends statements to the node's service.
//
// Postgres infers the types of parameters. Therefore this module sends each parameter with its JavaScript kind, and the
// node writes it for the inferred type. The node checks all arguments again: worker code could replace any function
// that this module calls.

const MAX_STATEMENTS = 1000;
// Arrays of Postgres have at most six dimensions. Deeper arrays can only be JSON.
const MAX_DEPTH = 6;
const BASE64_PART = 0x8000;

class DatabaseError extends Error {
  constructor(code, message, options) {
    super(message, options);
    this.code = code;
  }
}

const invalid = (message, cause) => new DatabaseError("invalid_argument", message, { cause });
const unavailable = (cause) =>
  new DatabaseError(
    "database_unavailable",
    "The connection to the database failed during the call. Check whether its statements were executed before you repeat it.",
    { cause },
  );

function checkText(text) {
  if (typeof text !== "string" || !text.isWellFormed() || text.includes("\0")) {
    throw invalid("The text of a statement must be a string without lone surrogates and U+0000.");
  }
  return text;
}

function bytesOf(value) {
  if (value instanceof Uint8Array) return value;
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  return undefined;
}

function encodeBase64(bytes) {
  if (typeof bytes.toBase64 === "function") return bytes.toBase64();
  let binary = "";
  for (let at = 0; at < bytes.length; at += BASE64_PART) {
    binary += String.fromCharCode.apply(null, bytes.subarray(at, at + BASE64_PART));
  }
  return btoa(binary);
}

function decodeBase64(text) {
  if (typeof Uint8Array.fromBase64 === "function") return Uint8Array.fromBase64(text);
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

function encodeObject(value) {
  let json;
  try {
    json = JSON.stringify(value);
  } catch (error) {
    throw invalid(`A parameter cannot be written as JSON: ${error.message}`, error);
  }
  if (json === undefined) throw invalid("A parameter cannot be written as JSON.");
  return `j${json}`;
}

// The kinds are those of `pg/parameter.rs`.
function encode(value, depth) {
  switch (typeof value) {
    case "undefined":
      return null;
    case "string":
      if (!value.isWellFormed()) throw invalid("A string in the parameters must not contain lone surrogates.");
      return `s${value}`;
    case "number":
      return Object.is(value, -0) ? "n-0" : `n${value}`;
    case "bigint":
      return `n${value}`;
    case "boolean":
      return value ? "t" : "f";
    case "object":
      break;
    default:
      throw invalid(`A parameter cannot be a ${typeof value}.`);
  }
  if (value === null) return null;
  if (Array.isArray(value)) {
    return depth < MAX_DEPTH ? Array.from(value, (element) => encode(element, depth + 1)) : encodeObject(value);
  }
  if (value instanceof Date) {
    if (Number.isNaN(value.getTime())) throw invalid("A parameter is an invalid Date.");
    return `d${value.toISOString()}`;
  }
  const bytes = bytesOf(value);
  return bytes === undefined ? encodeObject(value) : `b${encodeBase64(bytes)}`;
}

function checkStatement(text, params) {
  if (params !== undefined && params !== null && !Array.isArray(params)) throw invalid("The parameters must be an array.");
  return { text: checkText(text), params: Array.from(params ?? [], (value) => encode(value, 0)) };
}

function convertEach(value, convert) {
  if (value === null) return null;
  return Array.isArray(value) ? value.map((element) => convertEach(element, convert)) : convert(value);
}

// JSON has no bytes, `NaN` and infinities.
const CONVERSIONS = { f: Number, b: decodeBase64, F: Number, B: decodeBase64 };

function readResult({ fields, rows, rowCount }) {
  const conversions = fields.map(([, , conversion]) => CONVERSIONS[conversion]);
  const names = fields.map(([name]) => name);
  const readRow = (values) => {
    const row = {};
    for (let column = 0; column < names.length; column += 1) {
      const convert = conversions[column];
      const value = convert === undefined ? values[column] : convertEach(values[column], convert);
      if (names[column] === "__proto__") {
        Object.defineProperty(row, "__proto__", { value, configurable: true, enumerable: true, writable: true });
      } else {
        row[names[column]] = value;
      }
    }
    return row;
  };
  return { rows: rows.map(readRow), rowCount, fields: fields.map(([name, type]) => ({ name, type })) };
}

class Database {
  #fetch;

  constructor(service) {
    this.#fetch = service.fetch.bind(service);
  }

  async query(text, params) {
    const [result] = await this.#call("query", [checkStatement(text, params)]);
    return result;
  }

  async batch(statements) {
    if (!Array.isArray(statements)) throw invalid("A batch must be an array of statements.");
    if (statements.length > MAX_STATEMENTS) throw invalid("A batch can have at most 1,000 statements.");
    const checked = Array.from(statements, (statement) => {
      if (statement === null || typeof statement !== "object") throw invalid("A statement must be `{ text, params? }`.");
      return checkStatement(statement.text, statement.params);
    });
    return this.#call("batch", checked);
  }

  async #call(operation, statements) {
    let response, content;
    try {
      const body = JSON.stringify(statements);
      response = await this.#fetch(`http://db/${operation}`, { method: "POST", body });
      content = await response.json();
    } catch (error) {
      throw unavailable(error);
    }
    const { code, message } = response.ok ? (content.error ?? {}) : content;
    if (code !== undefined) throw new DatabaseError(code, message);
    return content.results.map(readResult);
  }
}

export default function (env) {
  return new Database(env.service);
}
