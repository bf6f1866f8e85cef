/** Stops a running chat, on whichever instance it runs (design "Cancel on disconnect"). */
import { hasScope } from "@toolyard/core/callers/caller";
import { stopCall } from "@toolyard/core/calls/cancel";
import type { CallContext } from "@toolyard/core/context";
import type { CoreDeps } from "@toolyard/core/core-deps";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { readEveryPage } from "@toolyard/core/every-page";
import * as z from "zod";
import { defineRoute } from "../define-route.ts";

const name = z.string().min(1).max(256);

const namedSchema = z
  .looseObject({ requestId: name.optional(), messageId: name.optional(), call_id: name.optional() })
  .refine((body) => body.requestId !== undefined || body.messageId !== undefined || body.call_id !== undefined, {
    error: "is required, where neither 'messageId' nor 'call_id' says which chat",
    path: ["requestId"],
  });

export const interrupt = defineRoute({
  method: "post",
  path: "/v1/interrupt",
  summary: "Stop a running chat",
  description:
    "Names the chat by the `requestId` or `messageId` of its request, by its `x-request-id`, or by `call_id`. It ends with the error `request_cancelled`.",
  tags: ["chat"],
  scope: "chat",
  request: {
    body: namedSchema,
  },
  responses: {
    200: {
      description: "It has been told to stop.",
      schema: z.object({ status: z.literal("success"), message: z.string(), call_ids: z.array(z.string()) }),
    },
  },
  isolation: { kind: "nothing-owned", reason: "finds running chats of the caller's own tenant only" },
  async handler(c, { core, context, body }) {
    const ids = await findRunning(core, context, body);
    if (ids.length === 0) {
      const [param, named] =
        body.call_id === undefined ? ["requestId", body.requestId ?? body.messageId] : ["call_id", body.call_id];
      throw new GatewayError("not_found", `No chat of this caller named '${named}' is running.`, { param });
    }
    for (const id of ids) await stopCall(core, context.tenant, id);
    return c.json({ status: "success", message: `Told ${ids.length} running chat(s) to stop.`, call_ids: ids });
  },
});

type Named = z.output<typeof namedSchema>;

/** Of all that run, however many: a name may be that of several, a call's id is one's. */
async function findRunning(
  { repos }: CoreDeps,
  { tenant, caller }: Pick<CallContext, "tenant" | "caller">,
  { requestId: named, messageId, call_id: id }: Named,
): Promise<readonly string[]> {
  const requestId = named ?? messageId;
  const seesAll = hasScope(caller, "calls");
  if (id !== undefined) {
    const call = await repos.calls.get(tenant, id);
    const fits =
      call?.kind === "chat" &&
      call.state === "running" &&
      (seesAll || call.callerId === caller.id) &&
      (requestId === undefined || call.requestId === requestId);
    return fits ? [id] : [];
  }
  const filter = {
    kind: "chat",
    state: "running",
    ...(requestId === undefined ? {} : { requestId }),
    ...(seesAll ? {} : { callerId: caller.id }),
  } as const;
  const running = await readEveryPage((page) => repos.calls.list(tenant, filter, page));
  return running.map((call) => call.id);
}
