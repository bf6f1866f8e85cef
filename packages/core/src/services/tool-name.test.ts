import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { serviceToolName } from "./tool-name.ts";

describe(`names of services' tools ${verifies("URI-1", "CHAT-1")}`, () => {
  test.each([
    ["api", "crm", "customer_list", "api_crm__customer_list"],
    ["mcp", "baidu_map", "map-ip", "mcp_baidu_map__map-ip"],
    ["flow", "daily", "", "flow_daily"],
  ] as const)("%s://%s/%s is %s", (scheme, service, tool, name) => {
    expect(serviceToolName(scheme, service, tool)).toBe(name);
  });

  test("fit every model, whatever the ids are, and are readable where they can be", () => {
    expect(serviceToolName("svc", "订单服务", "查询")).toMatch(/^[a-zA-Z0-9_-]{1,64}$/);
    expect(serviceToolName("api", "crm", "orders/open")).toMatch(/^api_crm_orders_open_[0-9a-f]{12}$/);
    expect(serviceToolName("api", "a".repeat(64), "b")).toHaveLength(64);
  });

  test("are different for different addresses", () => {
    const part = fc.stringMatching(/^[a-c_.-]{1,4}$/);
    fc.assert(
      fc.property(part, part, part, part, (service, tool, otherService, otherTool) => {
        fc.pre(service !== otherService || tool !== otherTool);
        expect(serviceToolName("api", service, tool)).not.toBe(serviceToolName("api", otherService, otherTool));
      }),
    );
  });
});
