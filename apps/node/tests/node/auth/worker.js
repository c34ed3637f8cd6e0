// Tests of `env.auth` (tests/node/auth/worker.rs).

async function outcome(call) {
  try {
    return { value: (await call()) ?? null };
  } catch (error) {
    return { code: error.code, message: error.message, isError: error instanceof Error };
  }
}

export default {
  async fetch(request, env) {
    const { pathname, searchParams } = new URL(request.url);
    const users = env.auth?.users;
    switch (pathname) {
      case "/granted":
        return new Response(String(env.auth !== undefined));
      case "/seen":
        return Response.json({ cookie: request.headers.get("cookie"), handle: request.headers.get("svc-auth-session") });
      case "/current":
        return Response.json(await outcome(() => users.current(request)));
      case "/current-copy":
        return Response.json(await outcome(() => users.current(new Request("http://other.example/", request))));
      case "/current-twice":
        return Response.json(await outcome(() => Promise.all([users.current(request), users.current(request)])));
      case "/current-changed": {
        const user = await users.current(request);
        user.name = "changed";
        return Response.json(await outcome(() => users.current(request)));
      }
      case "/current-later": {
        await users.current(request);
        await new Promise((resolve) => setTimeout(resolve, 2100));
        return Response.json(await outcome(() => users.current(request)));
      }
      case "/current-deleted": {
        const user = await users.current(request);
        await users.delete(user.id);
        return Response.json(await outcome(() => users.current(request)));
      }
      case "/current-forged": {
        const headers = { "svc-auth-session": searchParams.get("handle"), cookie: searchParams.get("cookie") ?? "" };
        return Response.json(await outcome(() => users.current(new Request(request.url, { headers }))));
      }
      case "/current-other":
        return Response.json(await outcome(() => users.current({ headers: request.headers })));
      case "/get":
        return Response.json(await outcome(() => users.get(searchParams.get("id"))));
      case "/get-number":
        return Response.json(await outcome(() => users.get(1)));
      case "/list": {
        const limit = searchParams.get("limit");
        const options = { cursor: searchParams.get("cursor"), limit: limit === null ? undefined : Number(limit) };
        return Response.json(await outcome(() => users.list(options)));
      }
      case "/list-all":
        return Response.json(await outcome(() => users.list()));
      case "/delete":
        return Response.json(await outcome(() => users.delete(searchParams.get("id"))));
      case "/cached":
        return new Response("cached", { headers: { "cache-control": "public, max-age=60" } });
      default:
        return new Response("page");
    }
  },
};
