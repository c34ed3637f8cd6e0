// The worker of the tests of mail.

const seen = [];

function content({ text, bytes, view }) {
  if (text !== undefined) return text;
  if (bytes !== undefined) return new Uint8Array(bytes).buffer;
  return new Uint8Array([0, ...view, 0]).subarray(1, view.length + 1);
}

async function send(email, mail) {
  try {
    return await email.send(mail);
  } catch (error) {
    return { isError: error instanceof Error, code: error.code, message: error.message };
  }
}

// Returns the code of each malformed call.
async function malformed(email) {
  const mail = { to: "ada@example.com", subject: "s", text: "t" };
  const attachment = { filename: "a", contentType: "text/plain", content: "c" };
  const codes = {};
  for (const [name, argument] of Object.entries({
    nothing: undefined,
    null: null,
    text: "ada@example.com",
    to: { ...mail, to: 1 },
    toLong: { ...mail, to: Array(1001).fill("ada@example.com") },
    headersLong: { ...mail, headers: Object.fromEntries(Array.from({ length: 1001 }, (_, i) => [`x-${i}`, ""])) },
    attachmentsLong: { ...mail, attachments: Array(1001).fill({ filename: "a", contentType: "x", content: "" }) },
    toList: { ...mail, to: ["ada@example.com", null] },
    toObject: { ...mail, to: { email: "ada@example.com" } },
    cc: { ...mail, cc: [["ada@example.com"]] },
    bcc: { ...mail, bcc: {} },
    from: { ...mail, from: ["ada@example.com"] },
    replyTo: { ...mail, replyTo: 1 },
    noSubject: { ...mail, subject: undefined },
    subject: { ...mail, subject: 1 },
    surrogate: { ...mail, subject: "\ud800" },
    body: { ...mail, text: new Uint8Array(1) },
    html: { ...mail, html: 1 },
    headers: { ...mail, headers: "x: y" },
    headerList: { ...mail, headers: [["x", "y"]] },
    headerObject: { ...mail, headers: new Headers({ x: "y" }) },
    headerValue: { ...mail, headers: { x: 1 } },
    attachments: { ...mail, attachments: attachment },
    attachment: { ...mail, attachments: [null] },
    filename: { ...mail, attachments: [{ ...attachment, filename: undefined }] },
    contentType: { ...mail, attachments: [{ ...attachment, contentType: 1 }] },
    content: { ...mail, attachments: [{ ...attachment, content: [1] }] },
    noContent: { ...mail, attachments: [{ ...attachment, content: undefined }] },
    large: { ...mail, attachments: Array(3).fill({ ...attachment, content: new Uint8Array(4 << 20) }) },
    long: { ...mail, text: "x".repeat(17 << 20) },
  })) {
    codes[name] = (await send(email, argument)).code ?? "sent";
  }
  return codes;
}

// Returns what `email()` receives.
async function described(message) {
  const { id, from, to, headers, rawSize } = message;
  const bytes = await new Response(message.raw).arrayBuffer();
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)).toHex();
  return { id, from, to, headers: [...headers], rawSize, size: bytes.byteLength, digest };
}

const modes = {
  async describe(message) {
    message.setReject(JSON.stringify(await described(message)));
  },
  ignore() {},
  async digest(message) {
    const digest = new crypto.DigestStream("SHA-256");
    await message.raw.pipeTo(digest);
    message.setReject(new Uint8Array(await digest.digest).toHex());
  },
  async cancel(message) {
    const reader = message.raw.getReader();
    await reader.read();
    await reader.cancel();
  },
  async lock(message) {
    await message.raw.getReader().read();
  },
  reject: (message) => message.setReject("first\r\nsecond"),
  rejectWithoutReason: (message) => message.setReject(),
  throw() {
    throw new TypeError("the error of the test");
  },
  throwText() {
    throw "a text";
  },
  throwObject() {
    throw { toString: null };
  },
  async throwLater(message) {
    message.setReject("not this");
    await scheduler.wait(1);
    throw new Error("later");
  },
  throwLong() {
    throw new Error("x".repeat(100_000));
  },
  rejectOddly: (message) => message.setReject("\ud800".repeat(5000)),
  never: () => new Promise(() => {}),
  hang: () => scheduler.wait(3_600_000),
  allocate() {
    for (const list = []; ; ) list.push(new Uint8Array(16 << 20).fill(1));
  },
};

export default {
  async fetch(request, env) {
    const { pathname } = new URL(request.url);
    if (pathname === "/granted") return new Response(String(env.email !== undefined));
    if (pathname === "/seen") return Response.json(seen);
    if (pathname === "/malformed") return Response.json(await malformed(env.email));
    if (pathname !== "/send") return new Response("fetch", { status: 404 });
    const mail = await request.json();
    mail.attachments = mail.attachments?.map((attachment) => ({ ...attachment, content: content(attachment) }));
    return Response.json(await send(env.email, mail));
  },

  async email(message) {
    seen.push(message.id);
    return modes[message.headers.get("x-mode")](message);
  },
};
