/** The least that a function of this kind can be: hono, its OpenAPI layer and jose, one route, one signed token. */
import { createRoute, OpenAPIHono, z } from "@hono/zod-openapi";
import { streamHandle } from "hono/aws-lambda";
import { jwtVerify } from "jose";

const secret = new TextEncoder().encode("the key of a benchmark, 32 bytes");
const message = z.object({ role: z.string(), content: z.string() });

const route = createRoute({
  method: "post",
  path: "/v1/chat/completions",
  request: {
    body: { content: { "application/json": { schema: z.object({ model: z.string(), messages: z.array(message) }) } } },
  },
  responses: {
    200: { description: "Who asked", content: { "application/json": { schema: z.object({ caller: z.string() }) } } },
  },
});

const app = new OpenAPIHono();
app.openapi(route, async (c) => {
  const token = c.req.header("authorization")?.replace("Bearer ", "") ?? "";
  const { payload } = await jwtVerify(token, secret);
  c.req.valid("json");
  return c.json({ caller: payload.sub ?? "" }, 200);
});

/** @public The benchmark's runner calls it by name. */
export const handler = streamHandle(app);
