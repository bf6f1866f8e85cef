/**
 * Where asynchronous plugins say what came of their tasks (VCP specification s. 4.2, 5; VCP-5). Answers have
 * upstream's form; errors have ours beside it.
 */
import { GatewayError, toGatewayError } from "@toolyard/core/errors/gateway-error";
import { callbackPath } from "@toolyard/core/vcp/async/callback-token";
import { largestCallback, takeCallback, type CallbackProof } from "@toolyard/core/vcp/async/take-callback";
import * as z from "zod";
import { headerOf, type AppContext } from "../app-env.ts";
import { defineRoute, type RouteModule } from "../define-route.ts";
import { toErrorReply } from "../errors.ts";
import type { CoreDeps } from "@toolyard/core/core-deps";
import { readWithin } from "@toolyard/core/read-body";

const answerSchema = z.strictObject({ status: z.literal("success"), message: z.string() });
/** Upstream's words beside ours; what is no address of a task is refused in ours alone. */
const refusalSchema = z.looseObject({
  status: z.literal("error").exactOptional(),
  message: z.string().exactOptional(),
});

const taskParams = { pluginName: z.string().min(1).max(256), taskId: z.string().min(1).max(256) };
const described = {
  tags: ["vcp"],
  scope: null,
  admission: "none",
  method: "post",
  responses: {
    200: { description: "Kept, or known already.", schema: answerSchema },
    400: { description: "The body is no object, or is about another task; nothing was stored.", schema: refusalSchema },
    401: { description: "Nothing proves that it comes from the plugin.", schema: refusalSchema },
    404: { description: "There is no such call or task.", schema: refusalSchema },
    409: { description: "The task id belongs to another call, or the call has 32 already.", schema: refusalSchema },
    413: { description: "The body is too large.", schema: refusalSchema },
  },
} as const;
const body = {
  stream: {
    mediaTypes: ["application/json"],
    description: "A JSON object; every field of it is kept.",
    json: z.looseObject({}),
  },
  // Here it is refused in upstream's form, beyond it in ours alone.
  maxBytes: 10 * largestCallback,
} as const;

export const pluginCallbackByToken: RouteModule = defineRoute({
  ...described,
  path: `${callbackPath}/t/{token}/{pluginName}/{taskId}`,
  summary: "What came of an asynchronous plugin's task",
  description:
    "The address begins with what the plugin was given as CALLBACK_BASE_URL, whose token names the call. A task id belongs to one call, and a call has 32 at most. Sent twice it does no harm: the first result stays.",
  request: { params: z.strictObject({ token: z.string().max(256), ...taskParams }), ...body },
  isolation: { kind: "nothing-owned", reason: "The token names the call, and is known to its plugin alone." },
  handler: (c, { core, params: { token, pluginName, taskId }, stream }) =>
    answer(c, core, { task: { plugin: pluginName, taskId }, stream, proof: () => ({ kind: "token", token }) }),
});

export const pluginCallback: RouteModule = defineRoute({
  ...described,
  path: `${callbackPath}/{pluginName}/{taskId}`,
  summary: "The same with a signature or a bearer token",
  description:
    "For those that speak for a plugin: signed with its CALLBACK_SECRET as Standard Webhooks has it, with the tenant in x-toolyard-tenant, for a task id that a call's plugin has named; or with the token of CALLBACK_BASE_URL as bearer.",
  request: {
    params: z.strictObject(taskParams),
    headers: {
      "x-toolyard-tenant": "Whose plugin it is; CALLBACK_TENANT.",
      "webhook-id": "Of the message.",
      "webhook-timestamp": "Unix seconds, at most five minutes off.",
      "webhook-signature": "`v1,` and the HMAC-SHA256 of `id.timestamp.body`, base64.",
    },
    ...body,
  },
  isolation: { kind: "nothing-owned", reason: "The signature is made with a secret of the tenant's plugin." },
  handler: (c, { core, params: { pluginName, taskId }, stream }) =>
    answer(c, core, { task: { plugin: pluginName, taskId }, stream, proof: () => readProof(c) }),
});

function readProof(c: AppContext): CallbackProof {
  const [, token] = /^Bearer +(\S+)$/i.exec(headerOf(c, "authorization") ?? "") ?? [];
  if (token !== undefined) return { kind: "token", token };
  const tenant = headerOf(c, "x-toolyard-tenant");
  const id = headerOf(c, "webhook-id");
  const timestamp = headerOf(c, "webhook-timestamp");
  const signature = headerOf(c, "webhook-signature");
  if (tenant === undefined || id === undefined || timestamp === undefined || signature === undefined) {
    return { kind: "none" };
  }
  return { kind: "signature", tenant, signature: { id, timestamp, signature } };
}

interface Given {
  readonly task: { readonly plugin: string; readonly taskId: string };
  readonly stream: AsyncIterable<Uint8Array>;
  readonly proof: () => CallbackProof;
}

async function answer(c: AppContext, core: CoreDeps, { task, stream, proof }: Given): Promise<Response> {
  try {
    const { tenant } = await takeCallback(core, { task, proof: proof(), body: await readText(stream) });
    c.get("exchange").tenant = tenant;
    return c.json({ status: "success", message: "Callback received and processed" }, 200);
  } catch (thrown) {
    const error = toGatewayError(thrown);
    if (error.spec.http >= 500) throw error;
    const { status, headers, body: text } = toErrorReply(error, c.get("exchange").requestId);
    const ours: unknown = JSON.parse(text);
    const both = { status: "error", message: error.message, ...(ours as object) };
    return new Response(JSON.stringify(both), { status, headers });
  }
}

/** @throws GatewayError `payload_too_large`, `invalid_json` for what is no text */
async function readText(stream: AsyncIterable<Uint8Array>): Promise<string> {
  const message = `A callback has at most ${largestCallback} bytes; keep what is larger elsewhere and send its address.`;
  const bytes = await readWithin(stream, largestCallback, () => new GatewayError("payload_too_large", message));
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new GatewayError("invalid_json", "The body of a callback must be JSON in UTF-8; nothing was stored.", {
      cause,
    });
  }
}
