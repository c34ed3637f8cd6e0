// The worker of the tests of `env.ai`.

export default {
  async fetch(request, env) {
    const { pathname } = new URL(request.url);
    if (pathname === "/granted") return new Response(String(env.ai !== undefined));
    if (pathname === "/models") return env.ai.fetch("https://ai/v1/models");
    if (pathname === "/unknown") return env.ai.fetch("https://ai/v1/embeddings", { method: "POST", body: "{}" });
    const text = await request.text();
    if (pathname === "/unread") {
      // Makes calls at the same time, and reads none of the responses.
      const send = () => env.ai.fetch("https://ai/v1/chat/completions", { method: "POST", body: text });
      const responses = await Promise.all(Array.from({ length: 4 }, send));
      return Response.json(responses.map(({ status }) => status));
    }
    if (pathname === "/fetch") {
      const headers = { authorization: "Bearer sk-of-the-code", "x-of-the-code": "1" };
      // SDKs call the function without its object.
      const { fetch } = env.ai;
      return fetch("https://ai/v1/chat/completions", { method: "POST", headers, body: text });
    }
    const body = JSON.parse(text);
    try {
      const answer = await env.ai.chat(body);
      if (!body.stream) return Response.json(answer);
      if (pathname === "/leave") {
        // Reads one event, and no more.
        const reader = answer.getReader();
        const { value } = await reader.read();
        await reader.cancel();
        return new Response(value);
      }
      return new Response(answer, { headers: { "content-type": "text/event-stream" } });
    } catch (error) {
      const { status, type, code, message } = error;
      return Response.json({ isError: error instanceof Error, status, type, code, message }, { status: 500 });
    }
  },
};
