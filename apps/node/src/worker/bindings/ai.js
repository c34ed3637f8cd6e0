// `env.ai`, as worker code sees it. Sends requests to the node's service, which has OpenAI's API.

class AIError extends Error {
  constructor(status, { message, type, code }) {
    super(message);
    this.status = status;
    this.type = type;
    this.code = code;
  }
}

const COMPLETIONS = "/v1/chat/completions";
const MODELS = "/v1/models";

const errorResponse = (status, code, message, headers) =>
  Response.json({ error: { message, type: "invalid_request_error", code } }, { status, headers });

// The errors that the bindings have in common are not in OpenAI's format, so they are converted.
async function inShape(response) {
  if (response.ok) return response;
  const text = await response.text();
  let content;
  try {
    content = JSON.parse(text);
  } catch {}
  const { status } = response;
  if (content?.error?.message !== undefined) {
    return new Response(text, { status, headers: response.headers });
  }
  const message = content?.message ?? "The node could not make the call.";
  return errorResponse(status, content?.code ?? "no_upstream", message);
}

class AI {
  // An own property that does not use `this`, because SDKs call the function without the object.
  fetch;

  constructor(service) {
    const send = service.fetch.bind(service);
    this.fetch = async (input, init) => {
      const request = new Request(input, init);
      const { pathname } = new URL(request.url);
      const isCompletion = request.method === "POST" && pathname === COMPLETIONS;
      if (!isCompletion && !(request.method === "GET" && pathname === MODELS)) {
        return errorResponse(404, "unknown_endpoint", "The endpoints are POST /v1/chat/completions and GET /v1/models.");
      }
      // The headers of the request are not forwarded, because they may contain a key of an SDK.
      const body = isCompletion ? await request.arrayBuffer() : undefined;
      return inShape(await send(`http://ai${pathname}`, { method: request.method, body, signal: request.signal }));
    };
  }

  async chat(body) {
    const response = await this.fetch(`https://ai${COMPLETIONS}`, { method: "POST", body: JSON.stringify(body) });
    if (!response.ok) throw new AIError(response.status, (await response.json()).error);
    return body?.stream === true ? response.body : response.json();
  }
}

export default function (env) {
  return new AI(env.service);
}
