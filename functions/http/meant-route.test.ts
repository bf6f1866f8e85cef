import { describe, expect, test } from "vitest";
import { findMeantRoute, isOfBase } from "./meant-route.ts";

const meantRoute = findMeantRoute(
  (
    [
      ["get", "/"],
      ["get", "/health/ready"],
      ["get", "/openapi.json"],
      ["get", "/v1/api-keys"],
      ["post", "/v1/chat/completions"],
      ["get", "/v1/group_chats"],
      ["post", "/v1/group_chats"],
      ["post", "/v1/knowledge/list_docs"],
      ["get", "/v1/sessions/{id}/files/{path+}"],
      ["get", "/v1/tool-services/{id}"],
      ["delete", "/v1/tool-services/{id}"],
      ["get", "/v1/tool-services"],
      ["post", "/v1/tool-services"],
      ["get", "/v1/tool-services/schemes"],
      ["get", "/v1/tool-services/{id}/tools"],
      ["get", "/v1/tools"],
    ] as const
  ).map(([method, path]) => ({ method, path })),
);

describe("the route that is meant where there is none", () => {
  test.each([
    ["GET", "/v1/tool_services", "/v1/tool-services"],
    ["GET", "/v1/toolservices", "/v1/tool-services"],
    ["GET", "/v1/tool-service", "/v1/tool-services"],
    ["GET", "/v1/tools-services", "/v1/tool-services"],
    ["GET", "/v1/TOOL-SERVICES", "/v1/tool-services"],
    ["HEAD", "/V1//Tool-Services/", "/v1/tool-services"],
    ["GET", "/tool_services", "/v1/tool-services"],
    ["GET", "/v1/v1/tool_services", "/v1/tool-services"],
    ["GET", "/v1/tool_services/svc_01/Tool", "/v1/tool-services/svc_01/tools"],
    ["DELETE", "/v1/tool-service/svc_A-s", "/v1/tool-services/svc_A-s"],
    ["GET", "/v1/group-chats", "/v1/group_chats"],
    ["POST", "/v1/group_chat", "/v1/group_chats"],
    ["POST", "/v1/chat/completion", "/v1/chat/completions"],
    ["POST", "/Chat/Completions", "/v1/chat/completions"],
    ["GET", "/v1/session/s1/file/a/B_c.txt", "/v1/sessions/s1/files/a/B_c.txt"],
    ["POST", "/v1/knowledge/list-doc", "/v1/knowledge/list_docs"],
    ["GET", "/v1/apikeys", "/v1/api-keys"],
    ["GET", "/v1/health/ready", "/health/ready"],
    ["GET", "/openapi.JSON", "/openapi.json"],
  ])("%s %s means %s", (method, path, meant) => {
    expect(meantRoute(method, path)).toBe(meant);
  });

  test("is the one with a word rather than the one with a parameter at its place", () => {
    expect(meantRoute("GET", "/v1/tool_services/Scheme")).toBe("/v1/tool-services/schemes");
    expect(meantRoute("GET", "/v1/tool_services/schemer")).toBe("/v1/tool-services/schemer");
  });

  test.each([
    ["PUT", "/v1/tool_services"],
    ["GET", "/v1/files"],
    ["GET", "/v1/v1/v1/tools"],
    ["POST", "/v1/tool-services/a/b/c"],
    ["GET", "/v1"],
    ["GET", `/${"s-/".repeat(20_000)}`],
  ])("%s %.40s means none", (method, path) => {
    expect(meantRoute(method, path)).toBeUndefined();
  });

  test("is another base address where the words are the same", () => {
    expect(isOfBase("/v1/tools", "//tools/")).toBe(true);
    expect(isOfBase("/v1/tools", "/v1/v1/tools")).toBe(true);
    expect(isOfBase("/v1/tool-services", "/tool_services")).toBe(false);
  });
});
