// The end of the main module of a project with a mail address. The entrypoint `Email` runs `email()` for a received
// mail. Only the node can send a request to it.

import { WorkerEntrypoint } from "cloudflare:workers";

const CHUNK_BYTES = 64 * 1024;
// The node shortens longer texts.
const MAX_TEXT_LENGTH = 2000;

if (code.default === undefined) {
  throw new TypeError("The main module has no default export, which a project with a mail address needs.");
}

// Reads the head of the request: its length in four bytes, then JSON.
async function readHead(reader) {
  const { value: length } = await reader.readAtLeast(4, new Uint8Array(4));
  const bytes = new DataView(length.buffer).getUint32(0);
  const { value } = await reader.readAtLeast(bytes, new Uint8Array(bytes));
  return JSON.parse(new TextDecoder().decode(value));
}

// Copies the mail to the stream that the code reads. Reads it to its end even if the code does not: otherwise,
// `workerd` closes the connection while the node still writes to it, and the node could lose the result.
async function copy(reader, writer) {
  let buffer = new ArrayBuffer(CHUNK_BYTES);
  try {
    for (;;) {
      const { value, done } = await reader.read(new Uint8Array(buffer));
      if (done) break;
      await writer.write(value).catch(() => {});
      buffer = value.buffer;
    }
    await writer.close().catch(() => {});
  } catch (error) {
    await writer.abort(error).catch(() => {});
  }
}

// Skips fields that `Headers` does not accept.
function headersOf(fields) {
  const headers = new Headers();
  for (const [name, value] of fields) {
    try {
      headers.append(name, value);
    } catch {}
  }
  return headers;
}

// Returns a text that is valid in UTF-8.
const textOf = (value) => String(value).slice(0, MAX_TEXT_LENGTH).toWellFormed();

function describe(error) {
  try {
    return textOf(error);
  } catch {
    return "email() threw an object that has no text.";
  }
}

class Email extends WorkerEntrypoint {
  async fetch(request) {
    const reader = request.body.getReader({ mode: "byob" });
    const { id, from, to, headers, rawSize } = await readHead(reader);
    // The stream that the code receives must not have been read: `new Response(message.raw)` requires that.
    const { readable: raw, writable } = new FixedLengthStream(rawSize);
    const writer = writable.getWriter();
    const copied = copy(reader, writer);
    const result = await this.#run({ id, from, to, headers: headersOf(headers), raw, rawSize });
    await writer.abort(new Error("email() has returned.")).catch(() => {});
    await copied;
    return Response.json(result);
  }

  async #run(message) {
    let reason;
    message.setReject = (text) => {
      reason = textOf(text ?? "");
    };
    try {
      const { default: exported } = code;
      const handler = typeof exported === "function" ? new exported(this.ctx, this.env) : exported;
      if (typeof handler.email !== "function") return "noHandler";
      await handler.email(message, this.env, this.ctx);
      return reason === undefined ? "handled" : { rejected: reason };
    } catch (error) {
      return { failed: describe(error) };
    }
  }
}

export { Email as "svc:email" };
