// `env.email`: the object of worker code, over the service of the node. The control plane checks addresses, limits and
// texts. This module checks only the types.

// A larger attachment exceeds the limit of an assembled mail in any case.
const MAX_ATTACHMENT_BYTES = 10 * 1024 * 1024;
// The node does not parse a longer array or object. The limits of the control plane are lower.
const MAX_ELEMENTS = 1000;

class EmailError extends Error {
  constructor(code, message, options) {
    super(message, options);
    this.code = code;
  }
}

const invalid = (message) => new EmailError("invalid_message", message);
const tooLarge = () => new EmailError("too_large", "The mail is too large. The limit is 10 MiB, with its attachments.");
const isMissing = (value) => value === undefined || value === null;
const isWellFormed = (value) => typeof value === "string" && value.isWellFormed();
// The control plane rejects U+0000 in any text, and does not name the field.
const isText = (value) => isWellFormed(value) && !value.includes("\0");

function checkText(code, name, value) {
  if (!isText(value)) throw new EmailError(code, `\`${name}\` must be a string without lone surrogates and U+0000.`);
  return value;
}

const checkOptional = (code, name, value) => (isMissing(value) ? null : checkText(code, name, value));

function checkLength(code, name, elements) {
  if (elements.length > MAX_ELEMENTS) throw new EmailError(code, `\`${name}\` has more than ${MAX_ELEMENTS} elements.`);
  return elements;
}

function checkAddresses(name, value) {
  if (isMissing(value)) return [];
  const addresses = Array.isArray(value) ? Array.from(checkLength("invalid_recipient", name, value)) : [value];
  if (!addresses.every(isText)) {
    throw new EmailError("invalid_recipient", `\`${name}\` must be an address, or an array of addresses.`);
  }
  return addresses;
}

function checkHeaders(headers) {
  if (isMissing(headers)) return {};
  // The entries of a `Headers` or a `Map` are not its properties.
  const isRecord = typeof headers === "object" && !(Symbol.iterator in headers);
  const entries = isRecord ? checkLength("invalid_message", "headers", Object.entries(headers)) : [];
  if (!isRecord || !entries.flat().every(isText)) {
    throw invalid("`headers` must be an object of strings without lone surrogates and U+0000.");
  }
  return Object.fromEntries(entries);
}

function bytesOf(content) {
  if (isWellFormed(content)) return new TextEncoder().encode(content);
  if (content instanceof ArrayBuffer) return new Uint8Array(content);
  if (ArrayBuffer.isView(content)) return new Uint8Array(content.buffer, content.byteOffset, content.byteLength);
  throw invalid("The content of an attachment must be a string, ArrayBuffer or ArrayBufferView.");
}

// Returns the media type. A string becomes UTF-8, but a mail client may assume another character set of a text.
function checkContentType(contentType, content) {
  const type = checkText("invalid_message", "contentType", contentType);
  const lacksCharset = typeof content === "string" && /^text\//i.test(type) && !/;\s*charset=/i.test(type);
  return lacksCharset ? `${type}; charset=utf-8` : type;
}

function checkAttachments(attachments) {
  if (isMissing(attachments)) return [];
  if (!Array.isArray(attachments)) throw invalid("`attachments` must be an array.");
  let left = MAX_ATTACHMENT_BYTES;
  return Array.from(checkLength("invalid_message", "attachments", attachments), (attachment) => {
    if (isMissing(attachment)) throw invalid("An attachment must be `{ filename, contentType, content }`.");
    const { filename, contentType, content } = attachment;
    const bytes = bytesOf(content);
    left -= bytes.byteLength;
    if (left < 0) throw tooLarge();
    return {
      filename: checkText("invalid_message", "filename", filename),
      contentType: checkContentType(contentType, content),
      content: bytes.toBase64(),
    };
  });
}

function checkMail(mail) {
  if (typeof mail !== "object" || mail === null) throw invalid("The mail must be an object.");
  return {
    from: checkOptional("invalid_sender", "from", mail.from),
    replyTo: checkOptional("invalid_message", "replyTo", mail.replyTo),
    to: checkAddresses("to", mail.to),
    cc: checkAddresses("cc", mail.cc),
    bcc: checkAddresses("bcc", mail.bcc),
    subject: checkText("invalid_message", "subject", mail.subject),
    text: checkOptional("invalid_message", "text", mail.text),
    html: checkOptional("invalid_message", "html", mail.html),
    headers: checkHeaders(mail.headers),
    attachments: checkAttachments(mail.attachments),
  };
}

class Email {
  #fetch;

  constructor(service) {
    this.#fetch = service.fetch.bind(service);
  }

  async send(mail) {
    const body = JSON.stringify(checkMail(mail));
    let response;
    try {
      response = await this.#fetch("http://email/send", { method: "POST", body });
    } catch (cause) {
      const message = "The connection to the node failed. The mail may have been queued. Try again later.";
      throw new EmailError("unavailable", message, { cause });
    }
    const { id, code, message } = await response.json();
    if (!response.ok) throw new EmailError(code, message);
    return { id };
  }
}

export default function (env) {
  return new Email(env.service);
}
