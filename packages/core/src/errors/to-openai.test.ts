import { expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "./gateway-error.ts";
import { toOpenAiError } from "./to-openai.ts";

test(`an error's own words come first, and nothing stands in their place ${verifies("CHAT-12")}`, () => {
  const extra = { provider: "acme", code: "theirs", message: "theirs", upstream_status: 400 };
  const body = toOpenAiError(new GatewayError("provider_rejected", "Refused.", { param: "messages", extra }), "req_1");
  expect(JSON.stringify(body)).toBe(
    `{"error":{"message":"Refused.","type":"invalid_request_error","param":"messages","code":"provider_rejected",` +
      `"request_id":"req_1","provider":"acme","upstream_status":400}}`,
  );
});
