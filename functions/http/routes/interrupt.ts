/** Stops a running chat, on whichever instance it runs (design "Cancel on disconnect"). */
import { hasScope } from "@toolyard/core/callers/caller";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import * as z from "zod";
import { defineRoute } from "../define-route.ts";

const name = z.string().min(1).max(256);

export const interrupt = defineRoute({
  method: "post",
  path: "/v1/interrupt",
  summary: "Stop a running chat",
  description:
    "Names the chat by the `requestId` or `messageId` of its request, by its `x-request-id`, or by `call_id`. It ends with the error `request_cancelled`.",
  tags: ["chat"],
  scope: "chat",
  request: {
    body: z
      .looseObject({ requestId: name.optional(), messageId: name.optional(), call_id: name.optional() })
      .refine((body) => body.requestId !== undefined || body.messageId !== undefined || body.call_id !== undefined, {
        error: "needs 'requestId', 'messageId' or 'call_id'",
        path: ["requestId"],
      }),
  },
  responses: {
    200: {
      description: "It has been told to stop.",
      schema: z.object({ status: z.literal("success"), message: z.string(), call_ids: z.array(z.string()) }),
    },
  },
  isolation: { kind: "nothing-owned", reason: "finds running chats of the caller's own tenant only" },
  handler: async (c, { core, caller, tenant, body }) => {
    const requestId = body.requestId ?? body.messageId;
    const running = await core.repos.calls.list(
      tenant,
      {
        kind: "chat",
        state: "running",
        ...(requestId === undefined ? {} : { requestId }),
        ...(hasScope(caller, "calls") ? {} : { callerId: caller.id }),
      },
      { limit: 100, order: "desc" },
    );
    const ids = running.data.map(({ id }) => id).filter((id) => body.call_id === undefined || id === body.call_id);
    if (ids.length === 0) {
      throw new GatewayError("not_found", `No chat of this caller named '${requestId ?? body.call_id}' is running.`, {
        param: "requestId",
      });
    }
    for (const id of ids) await core.repos.calls.requestCancel(tenant, id);
    return c.json({ status: "success", message: `Told ${ids.length} running chat(s) to stop.`, call_ids: ids });
  },
});
