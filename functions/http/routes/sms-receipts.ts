/** Where SMS vendors say what became of messages. The token in the address is all that they prove themselves with. */
import { parseJson } from "@toolyard/core/json";
import { receiptPath } from "@toolyard/core/sms/receipt-link";
import { takeReceipts } from "@toolyard/core/sms/take-receipts";
import * as z from "zod";
import { headerOf } from "../app-env.ts";
import { defineRoute } from "../define-route.ts";

const longestBody = 1_048_576;

export const takeSmsReceipts = defineRoute({
  tags: ["tool services"],
  scope: null,
  admission: "none",
  method: "post",
  path: `${receiptPath}{token}`,
  summary: "Where an SMS vendor tells what became of messages",
  description:
    "The address belongs to one service; a test of its connection says it. What is told goes into the outcome of the message's call. Sent twice or in another order it does no harm. An address or a message that is not known here is a 404.",
  request: {
    params: z.strictObject({ token: z.string() }),
    stream: {
      mediaTypes: ["application/json", "application/x-www-form-urlencoded"],
      description: "Receipts in the vendor's own form.",
    },
    maxBytes: longestBody,
  },
  responses: {
    200: { description: "Taken; in the vendor's own words", mediaType: "application/json" },
  },
  isolation: {
    kind: "nothing-owned",
    reason: "The token names tenant and service, and is signed with the tenant's key.",
  },
  async handler(c, { core, params: { token }, stream }) {
    const parts: Uint8Array[] = [];
    for await (const part of stream) parts.push(part);
    const text = Buffer.concat(parts).toString("utf8");
    const isForm = (headerOf(c, "content-type") ?? "").startsWith("application/x-www-form-urlencoded");
    const { tenant, answer } = await takeReceipts(core, token, {
      json: isForm ? undefined : parseJson(text),
      form: new URLSearchParams(isForm ? text : ""),
      query: new URL(c.req.url).searchParams,
    });
    c.get("exchange").tenant = tenant;
    return c.body(answer, 200, { "content-type": "application/json" });
  },
});
